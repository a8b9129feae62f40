"""One question to the search, and its answer: the best plans of a partial plan on a machine within a limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from ...dsl.plan import Plan
from ...dsl.tensors import Tensor
from ..topology import Machine
from .board import SOLVING, Settings
from .candidates import MAX_MESHES, Meshes, candidates, meshes
from .driver import Driver
from .pins import named_axes
from .pool import Pool
from .progress import Clock, Progress
from .result import PricedPlan
from .tried import Tried
from .workload import Workload, decided_remat
from .written import Minimise

MORE_MESHES = 8  # times as many, where those tried are proven to have no plan
FIRST = 0.85  # of the time for the best plan, where others come after; it is solved for as long as without others


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked.

    ``limit_bytes`` None is no limit; ``axis_names`` are the axes that the model itself names, whose own regions may be
    for the plan's mesh alone (``keeps_mesh``); ``max_meshes`` are tried, more where these are proven to have no plan.
    """

    plan: Plan
    workload: Workload = field(repr=False)
    machine: Machine
    limit_bytes: int | None
    axis_names: tuple[str, ...] = ()
    keeps_mesh: bool = False
    seed: int = 0
    exact: bool = False
    top_k: int = 1
    max_meshes: int = MAX_MESHES

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything that the plan can name, under its own remat policy where it has one."""
        return self.workload.tensors_under(decided_remat(self.plan))

    @property
    def kept(self) -> frozenset[str]:
        """The axes whose names are the user's."""
        named = named_axes(rule.assignment for rule in self.plan.rules)
        return frozenset((*self.axis_names, *named, *self.plan.mesh.sizes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What was found: the candidates with what was learnt of them, those with plans ranked, the bound on all plans.

    ``bound_s`` holds for every mesh of the machine, ``tried_bound_s`` for the meshes that were tried. ``further``
    searches on for so many plans until a time is over. ``least`` looks for the plan of the least memory within a time,
    where none fits, ``proven_bytes`` says what none takes less than; ``by_hand`` writes one that needs no looking for.
    To price a plan of a step that ``is_large`` takes seconds.
    """

    meshes: Meshes
    tried: tuple[Tried, ...]
    ranked: tuple[Tried, ...]
    bound_s: float
    tried_bound_s: float
    further: Callable[[int, Clock], Answer] = field(repr=False)
    least: Callable[[Clock], PricedPlan | None] = field(repr=False)
    proven_bytes: Callable[[], int] = field(repr=False)
    by_hand: Callable[[], PricedPlan | None] = field(repr=False)
    is_large: bool = False

    @property
    def plans(self) -> tuple[PricedPlan, ...]:
        """The plans, the best first."""
        return tuple(one.priced for one in self.ranked if one.priced)

    @property
    def best(self) -> PricedPlan | None:
        """The best plan."""
        return self.plans[0] if self.plans else None

    @property
    def infeasible(self) -> bool:
        """Whether it is proven that there is no plan."""
        return not self.ranked and self.bound_s == math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Means:
    """What answers questions: workers, what writes plans, who is told."""

    pool: Callable[[], Pool]
    minimise: Minimise
    on_progress: Callable[[Progress], None] | None = None

    def aside(self, doing: str) -> Means:
        """The same for a question beside the one that was asked, of which only this is told."""
        told = self.on_progress
        if told is None:
            return self
        said: list[str] = []

        def tell(state: Progress) -> None:
            told(replace(state, doing="" if said else doing))
            said.append(doing)

        return replace(self, on_progress=tell)


def answer(question: Question, means: Means, clock: Clock, *, more: bool = False) -> Answer:
    """Searches the meshes that promise most; further ones where these are proven to have no plan. Where ``more`` is
    asked for it leaves time for that.

    Raises ``PlanError`` where the pins forbid every mesh.
    """
    limit, solving = question.max_meshes, SOLVING / FIRST if more else SOLVING
    clock = clock.part(FIRST, as_found=True) if more else clock
    while True:
        found = _answer(question, means, clock, limit, solving)
        hopeless = not found.ranked and found.tried_bound_s == math.inf and not found.infeasible
        if not (hopeless and found.meshes.left_out) or question.max_meshes < MAX_MESHES or clock.over:
            return found
        limit *= MORE_MESHES


def _answer(question: Question, means: Means, clock: Clock, limit: int, solving: float) -> Answer:
    workload, machine = question.workload, question.machine
    listed = meshes(question.plan, machine, question.tensors, question.axis_names, limit)
    tried = candidates(question.plan, workload, machine, listed.listed)
    settings = Settings(
        machine=machine,
        limit_bytes=question.limit_bytes,
        seed=question.seed,
        exact=question.exact,
        top_k=question.top_k,
        kept=question.kept,
        solving=solving,
        left_out=listed.left_out,
        unlisted=listed.unlisted,
    )
    driver = Driver(
        tried,
        settings,
        workload=workload,
        pool=means.pool(),
        minimise=means.minimise,
        clock=clock,
        on_progress=means.on_progress,
    )

    def proven_bytes() -> int:
        known, untried = driver.board.proven_bytes(question.limit_bytes), driver.board.anywhere_bytes.values()
        return known if untried_s() == math.inf else min(known, *untried)

    def untried_s() -> float:
        return max(tried.even_s, driver.board.untried_s) if listed.left_out else math.inf

    def known(rows: Sequence[Tried]) -> Answer:
        return Answer(
            meshes=listed,
            tried=tuple(rows),
            ranked=tuple(driver.board.ranked),
            bound_s=min(driver.board.bound_s, untried_s()),
            tried_bound_s=driver.board.bound_s,
            further=lambda wanted, until: known(driver.further(wanted, until)),
            least=driver.least,
            proven_bytes=proven_bytes,
            by_hand=driver.by_hand,
            is_large=driver.board.is_large,
        )

    return known(driver.run())
