"""A step of repeated layers as the planner's search asks of it: by a shorter step, one layer of which stands for all
that are like it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.plan import Plan, Remat
from ...dsl.rule_matches import match_rules, names_values
from ...planner.estimate.estimate import estimate as estimated
from ...planner.estimate.figures import Estimate
from ...planner.search.workload import decided_remat
from ...planner.topology import physical
from .drafts import Drafts
from .estimate import argument_kinds
from .graph_cache import Known
from .repeats import Short, inherited, shortened
from .step_drafts import StepDrafts
from .trace import Traced
from .uncollected import uncollected
from .workload import PyTree, Step


class ShortDrafts(Drafts):
    """The shorter step of ``whole``.

    Its times are those of the whole step, as far as each layer takes what the one takes that stands for it; its memory
    is that of the layers which are left.
    """

    def __init__(self, whole: Drafts):
        super().__init__(whole.step, whole.args, donate_argnums=whole.donate_argnums)
        self._whole = whole
        self._drafts = self._steps = _ShortSteps(whole)

    @property
    def remat_policies(self) -> tuple[str, ...]:
        """Those of the whole step."""
        return self._whole.remat_policies

    def num_equations(self, remat: Remat | None) -> int:
        """The equations of the whole step under a remat policy, those of calls that hold several layers among them; 0
        where there is no shorter one.
        """
        short = self._steps.short(remat)
        return short.num_equations if short else 0

    def decides_alike(self, plan: Plan) -> bool:
        """Whether what a partial plan says of what is left out it says of what stands for that."""
        short = self._steps.short(decided_remat(plan))
        if short is None or names_values(plan.rules):
            return False
        deciding = match_rules(plan.rules, self._whole.traced(decided_remat(plan)).tensors).deciding
        return all(deciding[gone] is deciding[other] for gone, other in short.stands_for.items())

    def estimate(self, plan: Plan, *, once: bool = False, nearly: bool = False) -> Estimate:
        """What a complete plan takes. Raises ``PlanError`` for one that is not legal."""
        if plan.topology is None:
            return super().estimate(plan, once=once, nearly=nearly)
        machine = physical(plan.topology)
        with uncollected():
            read = self._steps.step_graph(plan, self.step, self.args, nearly=nearly)
            returned = {tensor.path: tensor.returns for tensor in read.traced.results if tensor.returns}
            kinds = argument_kinds(read.traced)
            known = Known(
                graph=inherited(read.graph),
                kinds=kinds,
                returned=returned,
                notes=read.notes,
                order=None,
                found=self._steps.found,
                tariffs=self._steps.tariffs,
                counted=self._steps.counted,
            )
            limit_bytes = plan.limits.hbm_bytes
            tariffs, notes = self._steps.tariffs, known.notes
            return estimated(
                known.work(machine), plan.mesh, machine, limit_bytes=limit_bytes, notes=notes, tariffs=tariffs
            )

    def foresee(self, plan: Plan) -> None:
        """Prices a plan that is likely to be the answer for the whole step. Raises ``PlanError`` for one that is not
        legal.
        """
        if self.lays_all(plan):
            self._whole.estimate(plan, once=True)

    def lays_all(self, plan: Plan) -> bool:
        """Whether a plan lays out each argument and result of the whole step as what stands for it.

        Raises ``PlanError`` where it is not legal for the whole step.
        """
        short, layouts = self._steps.short(plan.remat), self._whole.layouts(plan)
        traced = layouts.traced
        edges = {tensor.path: tensor for tensor in (*traced.arguments, *traced.results)}
        pairs = ((edges[gone], edges[other]) for gone, other in short.stands_for.items()) if short else ()
        return all(layouts.of(gone) == layouts.of(other) for gone, other in pairs)


class _ShortSteps(StepDrafts):
    """The drafts of shorter steps; where no layers repeat they are those of the whole one."""

    def __init__(self, whole: Drafts):
        super().__init__(None)
        self._whole = whole
        self._short: dict[Remat | None, Short | None] = {}

    @uncollected()
    def short(self, remat: Remat | None) -> Short | None:
        """The shorter step under a remat policy; None where it is the whole one."""
        if remat not in self._short:
            self._short[remat] = shortened(self._whole.traced(remat), self._whole.donate_argnums)
        return self._short[remat]

    def traced(self, step: Step, args: Sequence[PyTree], remat: Remat | None, *, noting: bool = False) -> Traced:
        """The shorter step."""
        short = self.short(remat)
        return self._whole.traced(remat) if short is None else short.traced
