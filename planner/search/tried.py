"""What a search has learnt of a candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..graph import Sharding
from .candidates import Candidate
from .result import PricedPlan
from .task import First, Found, Near

CLOSE = 1e-3  # plans whose step times differ by less are as good as each other


@dataclass(slots=True, kw_only=True)
class Tried:
    """What is known of a candidate: a bound, the best layouts and their cost, the plan that they became, or why none.

    ``cutoff_s`` is what it was last solved below, -inf where it was not. ``floor_s`` is a bound that takes less for
    granted than ``bound_s``; both allow that a plan takes ``credit_s`` less than its program says. ``loose_s`` is what
    plans take at least that need not keep pins on what stays inside of kernels. ``given_s`` is the time that it was not
    solved in, infinite where it was. ``least`` are layouts that take ``least_bytes``, the least that was seen, where
    none fit, and nothing takes less than ``proven_bytes``, nor on any mesh than ``anywhere_bytes``; ``near`` some that
    take a little more than the limit, ``runners_up`` those that were next to the best; ``beyond`` is a
    plan that does not fit. ``inside`` says that pins are of what stays inside of kernels, ``anywhere`` that no mesh has
    a plan with its policy.
    """

    candidate: Candidate
    bound_s: float
    floor_s: float = 0.0
    cutoff_s: float = -math.inf
    credit_s: float = 0.0
    loose_s: float = 0.0
    solved: bool = False
    given_s: float = math.inf
    objective_s: float = math.inf
    layouts: Mapping[str, Sharding] = field(default_factory=dict, repr=False)
    priced: PricedPlan | None = None
    least: Mapping[str, Sharding] = field(default_factory=dict, repr=False)
    least_bytes: int = 0
    proven_bytes: int = 0
    anywhere_bytes: int = 0
    near: Sequence[Near] = field(default=(), repr=False)
    runners_up: Sequence[First] = field(default=(), repr=False)
    inside: bool = False
    beyond: PricedPlan | None = None
    anywhere: bool = False
    why: str = ""

    @property
    def num_axes(self) -> int:
        """How many axes its mesh has."""
        return len(self.candidate.plan.mesh.sizes)

    @property
    def step_time_s(self) -> float:
        """The price of its plan, infinite without one."""
        return self.priced.step_time_s if self.priced else math.inf

    @property
    def value_s(self) -> float:
        """The best that is known to be had: its plan's price, or its layouts' cost before they became a plan."""
        return self.step_time_s if self.priced or self.failed else self.objective_s

    @property
    def failed(self) -> bool:
        """Whether its layouts became no plan."""
        return bool(self.layouts) and self.priced is None and bool(self.why)

    @property
    def infeasible(self) -> bool:
        """Whether it is proven that it has no plan."""
        return self.bound_s == math.inf

    def keep_least(self, found: Found) -> None:
        """Keeps what takes least memory, and what is proven of that."""
        if found.least and (not self.least or found.least_bytes < self.least_bytes):
            self.least, self.least_bytes = found.least, found.least_bytes
        self.proven_bytes = max(self.proven_bytes, found.proven_bytes)
        self.anywhere_bytes = max(self.anywhere_bytes, found.anywhere_bytes)


def beside(candidate: Candidate, objective_s: float, layouts: Mapping[str, Sharding]) -> Tried:
    """Layouts that are not a candidate's own solution."""
    return Tried(
        candidate=candidate,
        bound_s=math.inf,
        cutoff_s=math.inf,
        solved=True,
        objective_s=objective_s,
        layouts=layouts,
    )


def why_not(one: Tried, best_s: float) -> str:
    """Why a candidate has no plan, where the best that was written takes ``best_s``."""
    if one.infeasible:
        return "no layouts fit the limit"
    if one.bound_s >= best_s * (1 - CLOSE):
        return "its bound is above the best plan"
    if one.layouts:
        costs_more = one.objective_s >= best_s
        return "its layouts cost more than the best plan" if costs_more else "the time was over before it was written"
    return "no layouts were found, which proves nothing" if one.solved else "the time was over"
