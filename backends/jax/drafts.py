"""A step as the planner's search asks of it: its tensors, its graph before any layout, the price of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

from ...dsl.plan import Plan, Remat
from ...dsl.tensors import Tensor
from ...planner.compute import Calibration
from ...planner.estimate.figures import Estimate
from ...planner.graph import Graph, Sharding
from ...planner.search.floor import Products
from .estimate import drafts_of, estimate, graph_of
from .layouts import StepLayouts, given_in_place
from .tag_values import call_values, given_values, lays_out, tag_values
from .trace import Traced
from .workload import PyTree, Step, arguments_of

POLICIES = ("full", "dots")


class Drafts:
    """A step and its abstract arguments (``planner.search.Workload``). Donation and calibration are ``estimate``'s.

    Raises ``PlanError`` as tracing does.
    """

    def __init__(
        self,
        step: Step,
        args: Sequence[PyTree],
        *,
        donate_argnums: int | Sequence[int] | None = None,
        calibration: Calibration | None = None,
    ):
        self.step = step
        self.args = arguments_of(args)
        self.donate_argnums = donate_argnums
        self._calibration = calibration
        self._drafts = drafts_of(step, self.args, donate_argnums)
        self._lays_out: dict[Remat | None, bool] = {}

    def traced(self, remat: Remat | None = None) -> Traced:
        """The step as traced for a remat policy."""
        return self._drafts.traced(self.step, self.args, remat, noting=True)

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything that a plan without remat can name, the values under ``ops/`` among it."""
        return self.tensors_under(None)

    def tensors_under(self, remat: Remat | None) -> tuple[Tensor, ...]:
        """Everything that a plan with this remat policy can name: with one the step computes other values."""
        traced = self.traced(remat)
        return traced.tensors + traced.values.tensors

    def tags_under(self, remat: Remat | None) -> Mapping[str, tuple[str, ...]]:
        """The computed values that the model tags, by the tag's path, under a remat policy."""
        return tag_values(self.traced(remat))

    def calls_under(self, remat: Remat | None) -> Mapping[str, str]:
        """By the path of what a call gives, that of what is computed in it, under a remat policy."""
        return call_values(self.traced(remat))

    def given_under(self, plan: Plan) -> Mapping[str, Sharding]:
        """How values lie that the model itself lays out on a plan's mesh, by path, under its remat policy."""
        traced = self.traced(plan.remat)
        if plan.remat not in self._lays_out:
            self._lays_out[plan.remat] = lays_out(traced)
        return given_values(traced, given_in_place(plan, traced)) if self._lays_out[plan.remat] else {}

    def layouts(self, plan: Plan) -> StepLayouts:
        """The layouts of a complete plan. Raises ``PlanError`` for one that is not legal."""
        return self._drafts.layouts(plan, self.step, self.args)

    @cached_property
    def remat_policies(self) -> tuple[str, ...]:
        """The policies worth trying; ``none`` alone where the step marks no blocks."""
        marks = self._drafts.marks_blocks(self.step, self.args)
        return ("none", *POLICIES) if marks else ("none",)

    def graph(self, plan: Plan) -> Graph:
        """The step's graph before a plan lays it out: every sharding whole, over the plan's mesh.

        The operation that makes a value has its path as ``origin.value``. Of the plan only the mesh, the remat policy
        and the platform of its topology matter. What the step assigns in place stands as ``sharding_constraint``, what
        it maps itself as ``manual_computation``. Raises ``PlanError`` where it cannot be lowered (MW413).
        """
        return self._drafts.unlaid(plan, self.step, self.args)

    def laid(self, plan: Plan) -> Graph | None:
        """The graph after propagation under a complete plan, named as ``graph``'s; None where it is not known.

        Raises ``PlanError`` for a plan that is not legal.
        """
        return self._drafts.laid(plan, self.step, self.args)

    def lies(self, plan: Plan) -> Mapping[str, Sharding] | None:
        """How the step's values come to lie under a complete plan, by path, nearly; None where it is not known.

        It is found in a fraction of ``laid``'s time. Raises ``PlanError`` for a plan that is not legal.
        """
        return self._drafts.lies(plan, self.step, self.args)

    def estimate(self, plan: Plan, *, once: bool = False, nearly: bool = False) -> Estimate:
        """What ``estimate`` says of a complete plan. Raises ``PlanError`` as that does."""
        return estimate(
            plan,
            self.step,
            self.args,
            donate_argnums=self.donate_argnums,
            calibration=self._calibration,
            once=once,
            nearly=nearly,
        )

    def foresee(self, plan: Plan) -> None:
        """Of a plan that is likely to be the answer: there is nothing to make ready."""

    def products(self, plan: Plan) -> Products:
        """The matrix products of the step that a complete plan prices. Raises ``PlanError`` as ``estimate`` does."""
        return Products.of(graph_of(plan, self.step, self.args, self.donate_argnums))
