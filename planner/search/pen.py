"""Makes plans of layouts, and keeps them: what all that is written has in common."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from ...dsl.errors import PlanError
from ...dsl.plan import Limits, Plan
from ..estimate.figures import Estimate
from ..graph import Sharding
from .board import Board, Settings
from .naming import Laid, readable
from .progress import Clock
from .result import PricedPlan
from .tried import Tried
from .workload import Rematerialised, Workload
from .written import Minimise, Written

FINISHING_S = 5.5e-4  # for each operation: what a plan takes that is written after its deadline


class Pen:
    """Writes the layouts of candidates on the board as plans, and says what it writes."""

    def __init__(
        self,
        board: Board,
        settings: Settings,
        *,
        workload: Workload,
        minimise: Minimise,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self.board, self.settings, self.workload, self.clock, self.say = board, settings, workload, clock, say
        self._minimise = minimise

    def write(
        self,
        one: Tried,
        deadline: float | None = None,
        before: Callable[[], None] = lambda: None,
        of: tuple[Mapping[str, Sharding], float] | None = None,
        begun: Written | None = None,
        proven_s: float | None = None,
        limits: Limits | None = None,
    ) -> Written:
        """The plan of a candidate's layouts, or ``of`` others on its mesh and what they are promised to take (0 where
        that is not known); ``begun`` was written of them before anything was proven (``proven_s``: 0). ``limits`` are
        those of the candidate's plan, if no other ones.
        """
        settings, plan = self.settings, one.candidate.plan
        workload = Rematerialised(self.workload, plan.remat, before)
        layouts, promised_s = of or (one.layouts, one.objective_s)
        proven_s = self.board.bound_s if proven_s is None else proven_s
        laid = readable(Laid(mesh=plan.mesh, layouts=layouts), settings.machine, workload.tensors, settings.kept)
        open_plan = replace(
            plan, mesh=laid.mesh, limits=Limits(hbm_bytes=(limits or plan.limits).hbm_bytes), result=None
        )
        begin_s = self.clock.elapsed_s
        written = self._minimise(
            laid.layouts,
            open_plan,
            workload,
            deadline=self.clock.end - FINISHING_S * self.board.num_ops if deadline is None else deadline,
            exact=settings.exact,
            promised_s=promised_s if math.isfinite(promised_s) else 0.0,
            proven_s=proven_s if math.isfinite(proven_s) else 0.0,
            begun=begun,
        )
        self.board.writing_s = max(self.board.writing_s, self.clock.elapsed_s - begin_s)
        return written

    def keep(self, one: Tried, written: Written | PricedPlan) -> None:
        """Keeps a plan that fits; the time is kept for the compiler that one has to be asked about."""
        one.priced = PricedPlan(plan=written.plan, estimate=written.estimate)
        self.board.is_near = self.settings.is_near(written.estimate)
        if self.board.is_near:
            self.clock.found()

    def priced(self, plan: Plan) -> PricedPlan | None:
        """A plan with its price; None where it is none, or takes more memory than it may."""
        try:
            found = PricedPlan(plan=plan, estimate=self.workload.estimate(plan))
        except PlanError:
            return None
        return found if self.excess_bytes(found.estimate) <= 0 else None

    def excess_bytes(self, estimate: Estimate) -> float:
        """What a plan takes above the limit; below nothing where it fits."""
        return estimate.peak_bytes - (self.settings.limit_bytes or math.inf)

    @property
    def is_late(self) -> bool:
        """Whether there is no time for another plan."""
        return self.clock.over or self.clock.left_s < self.board.writing_s


def keep_beyond(one: Tried, written: Written | PricedPlan) -> None:
    """Keeps a plan that takes too much, if no other of the candidate takes less."""
    if one.beyond is None or written.estimate.peak_bytes < one.beyond.peak_bytes:
        one.beyond = PricedPlan(plan=written.plan, estimate=written.estimate)
