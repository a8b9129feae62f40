"""What a search over candidates is asked for, and what it knows so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ...dsl.plan import Mesh
from ..estimate.figures import Estimate
from ..estimate.limit import is_near
from ..topology import Machine
from .alike import Alike, unlisted_s
from .result import PricedPlan
from .tried import CLOSE, Tried

AGAIN = 1e-2  # by how much a candidate that was cut off must be able to be better to be solved once more
SOLVING = 0.6  # of the time at most until there are plans, which the rest writes
LARGE = 5000  # operations: to price a plan of a step with more takes seconds
SHORT = 1000  # operations: of so few it is known soon what no mesh can hold
SOON = 300  # operations: of so few it is known soon what a plan's layouts cost
LONGER = 1.5  # times the time that one was not solved in: what there must be to solve it once more


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a search is asked for. ``kept`` are the axes that keep their names; ``limit_bytes`` None: no limit.
    ``solving`` is the part of the time that is solved in at most until there are plans. Of meshes ``left_out`` little
    is proven: what was found is not proven better among the others then, which would take as long again. ``unlisted``
    are those of them that may be bounded with others like them.
    """

    machine: Machine
    limit_bytes: int | None
    seed: int = 0
    exact: bool = False
    top_k: int = 1
    kept: frozenset[str] = frozenset()
    solving: float = SOLVING
    left_out: int = 0
    unlisted: tuple[Mesh, ...] = ()

    def is_near(self, estimate: Estimate) -> bool:
        """Whether a plan takes nearly what it may, so that the compiler is to be asked about it."""
        return self.limit_bytes is not None and is_near(estimate, self.limit_bytes)


@dataclass(slots=True, kw_only=True)
class Board:
    """The candidates in their order with what was learnt of them, and plans ``by_hand``, which nobody solved, with what
    was found to be better beside a plan.

    A plan may take ``credit_s`` less than its program says, as some did; ``doubts`` counts how often the programs'
    bounds were taken back. ``writing_s`` is what it took to write one plan, ``solving_s`` by the number of axes what it
    took to solve one mesh, ``num_ops`` how many operations the step has. ``least_s`` has by policy what computing takes
    at least on any mesh, by the costs of kernels, which plans were seen to take the part ``credit`` less than. The plan
    that was written last ``is_near`` its limit, as far as is known. Those that are ``alike`` are bounded together.
    """

    tried: list[Tried]
    top_k: int = 1
    by_hand: list[Tried] = field(default_factory=list)
    doubts: int = 0
    credit_s: float = 0.0
    num_ops: int = 0
    writing_s: float = 0.0
    solving_s: dict[int, float] = field(default_factory=dict)
    least_s: dict[int, float] = field(default_factory=dict)
    credit: float = 0.0
    is_near: bool = True
    alike: list[Alike] = field(default_factory=list)

    @property
    def is_large(self) -> bool:
        """Whether to price a plan takes seconds."""
        return self.num_ops > LARGE

    @property
    def every(self) -> Iterator[Tried]:
        """All of them."""
        yield from self.tried
        yield from self.by_hand

    @property
    def ranked(self) -> list[Tried]:
        """Those with a plan, the best first."""
        found = [one for one in self.every if one.priced is not None]
        return sorted(found, key=lambda one: (one.step_time_s, one.candidate.index))

    @property
    def least_beyond(self) -> PricedPlan | None:
        """Of the plans that do not fit the one that takes least memory."""
        plans = (one.beyond for one in self.every if one.beyond is not None)
        return min(plans, key=lambda plan: (plan.peak_bytes, plan.step_time_s), default=None)

    def proven_bytes(self, limit_bytes: int | None) -> int:
        """What no plan of the candidates takes less than, as far as that is known: more than the ``limit_bytes`` that
        some are proven to have none within.
        """
        within = 0 if limit_bytes is None else limit_bytes + 1
        anywhere = self.anywhere_bytes
        return min(
            (
                max(
                    one.candidate.least_bytes,
                    one.proven_bytes,
                    anywhere.get(one.candidate.policy, 0),
                    within if one.infeasible else 0,
                )
                for one in self.tried
            ),
            default=0,
        )

    @property
    def anywhere_bytes(self) -> dict[int, int]:
        """What plans take at least on any mesh, by policy, of those of which that is known."""
        found: dict[int, int] = {}
        for one in self.tried:
            found[one.candidate.policy] = max(found.get(one.candidate.policy, 0), one.anywhere_bytes)
        return found

    @property
    def bound_s(self) -> float:
        """What no plan of the candidates takes less than; infinite where none has a plan."""
        return min((one.bound_s for one in self.tried), default=math.inf)

    @property
    def worth_s(self) -> float:
        """What a candidate has to take less than to be of interest."""
        values = sorted(one.value_s for one in self.every)
        return values[self.top_k - 1] if len(values) >= self.top_k else math.inf

    @property
    def written_s(self) -> float:
        """What a plan has to take less than to be of interest, beside those that were written."""
        return self.ranked[self.top_k - 1].step_time_s if len(self.ranked) >= self.top_k else math.inf

    @property
    def best_s(self) -> float:
        """The best that is known to be had."""
        return min((one.value_s for one in self.every), default=math.inf)

    @property
    def is_written(self) -> bool:
        """Whether what others have to be better than are plans, and not what layouts promise."""
        return len(self.ranked) >= self.top_k and self.written_s <= self.worth_s

    def open(self, *, again: bool, in_s: float = 0.0) -> list[Tried]:
        """Those that may give a better plan if they are solved, each in so much time; ``again``: of those that were
        solved a much better one.
        """
        worth_s = self.worth_s
        unsolved = [one for one in self.tried if one.cutoff_s < worth_s or one.given_s * LONGER < in_s]
        return [
            one
            for one in unsolved
            if one.bound_s < worth_s * (1 - (AGAIN if again and one.cutoff_s > -math.inf else CLOSE))
        ]

    def expected_s(self, one: Tried) -> float:
        """What solving a candidate is likely to take: what others with no more axes took."""
        axes = one.num_axes
        return max((took_s for count, took_s in self.solving_s.items() if count <= axes), default=0.0)

    def least_of(self, policy: int) -> float:
        """What a step takes at least on any mesh under a policy, as far as that is known and no plan is below it."""
        least_s = self.least_s.get(policy, 0.0) * (1 - self.credit)
        below = any(plan.step_time_s < least_s for plan in self.ranked if plan.candidate.policy == policy)
        return 0.0 if below or self.doubts else least_s

    @property
    def untried_s(self) -> float:
        """What a step takes at least on meshes that were not tried; infinite where it fits none."""
        nowhere = {one.candidate.policy for one in self.tried if one.anywhere and one.infeasible}
        policies = {one.candidate.policy for one in self.tried}
        return min((math.inf if each in nowhere else self._untried_of(each) for each in policies), default=0.0)

    def _untried_of(self, policy: int) -> float:
        unlisted = any(each.unlisted for each in self.alike) and not self.doubts
        return max(self.least_of(policy), unlisted_s(self.alike, policy) if unlisted else 0.0)

    def is_doubted(self, one: Tried) -> bool:
        """Whether it is doubted that a candidate's policy fits any mesh: of short steps where nothing was found to fit,
        else once another one did not.
        """
        if any(other.layouts for other in self.tried):
            return False
        return self.num_ops <= SHORT or any(other.solved for other in self.tried if other is not one)

    def rule_out(self, one: Tried) -> None:
        """Says of all candidates with the policy of one that they have no plan, but for those that have."""
        for other in self.tried:
            if other.candidate.policy == one.candidate.policy and not other.layouts:
                other.anywhere = other.solved = True
                other.bound_s = math.inf
                other.given_s = math.inf

    def settle(self) -> None:
        """Bounds all by what computing takes at least: of those that nobody solved that is more than was known. And by
        what is known without pins inside of kernels, where bounds were taken back and no plan is below it.
        """
        for one in self.tried:
            one.bound_s = max(one.bound_s, self.least_of(one.candidate.policy))
            plans = (plan.step_time_s for plan in self.ranked if plan.candidate.index == one.candidate.index)
            if (self.doubts or self.credit_s) and all(seconds >= one.loose_s for seconds in plans):
                one.bound_s = max(one.bound_s, one.loose_s)

    def forget(self) -> None:
        """Leaves out what was found beside a plan and became none."""
        self.by_hand = [one for one in self.by_hand if one.priced is not None or one.why]

    def doubt(self, cost_of: Callable[[Tried], float | None]) -> None:
        """Takes the programs' bounds back where a plan is below one: what they leave out matters on this step.

        First by as much as such a plan takes less than what its layouts cost in a program, which ``cost_of`` says where
        it can, and where it is still below, since what was learnt was charged to it too, by twice as much as it is: at
        once where that proves enough of a step whose program takes long to solve once more. Then they fall to what
        kernels alone take, then to what no layouts can change.
        """
        for plan in self.ranked:
            told = self._asked_of(plan)
            if told.infeasible:  # and is not: the program counts more memory than there is
                policy, anywhere = told.candidate.policy, told.anywhere
                wrong = [each for each in self.tried if anywhere and each.anywhere and each.candidate.policy == policy]
                for each in (told, *wrong):
                    each.anywhere, each.bound_s = False, each.candidate.floor_s
                    each.floor_s = each.candidate.floor_s
        for plan in self.ranked:
            if self.doubts or not self._is_below(plan):
                continue
            is_enough = self.num_ops > SOON and self._above_s(plan) <= AGAIN * plan.step_time_s
            cost_s = None if is_enough else cost_of(plan)
            if cost_s is not None:
                self._credit(cost_s - plan.step_time_s)
            if (is_enough or cost_s is not None) and self._is_below(plan):
                self._credit(self._asked_of(plan).credit_s + 2 * self._above_s(plan))
        while self.doubts < 2 and any(map(self._is_below, self.ranked)):
            self.doubts += 1
            for one in self.tried:
                if not one.infeasible:
                    one.bound_s = one.floor_s = one.floor_s if self.doubts == 1 else one.candidate.floor_s

    def _asked_of(self, plan: Tried) -> Tried:
        """What is known of the candidate of a plan, which may be laid out by hand."""
        return next(one for one in self.tried if one.candidate.index == plan.candidate.index)

    def _above_s(self, plan: Tried) -> float:
        """How much more than a plan takes the bound says that none takes less than."""
        return self._asked_of(plan).bound_s - plan.step_time_s

    def _is_below(self, plan: Tried) -> bool:
        return plan.step_time_s < self._asked_of(plan).bound_s * (1 - CLOSE)

    def _credit(self, credit_s: float) -> None:
        """Allows that every plan takes so much less than its program says, those that come too."""
        for each in self.alike:
            each.bound_s = max(each.bound_s - max(credit_s - self.credit_s, 0.0), 0.0)
        self.credit_s = max(self.credit_s, credit_s)
        for one in self.tried:
            more_s = credit_s - one.credit_s
            if more_s > 0 and not one.infeasible:
                one.bound_s = max(one.bound_s - more_s, one.candidate.floor_s)
                one.floor_s = max(one.floor_s - more_s, one.candidate.floor_s)
                one.credit_s = credit_s
