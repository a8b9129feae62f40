"""What the search asks of a step: its tensors, its graph, the price of a plan. A backend answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ...dsl.plan import Plan, Remat
from ...dsl.tensors import Tensor
from ..estimate.figures import Estimate
from ..graph import Axes, Graph, Sharding

SKETCHED = "What the plan takes is known nearly: its layouts are put into a step that was simplified before."


class Workload(Protocol):
    """A step and its abstract arguments, as the planner sees them."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything that a plan without remat can name: arguments, results, tagged values, values under ``ops/``."""

    def tensors_under(self, remat: Remat | None) -> tuple[Tensor, ...]:
        """The same of a plan with this remat policy: with one the step computes other values."""

    @property
    def remat_policies(self) -> tuple[str, ...]:
        """The policies worth trying; ``("none",)`` where the step marks no blocks."""

    def graph(self, plan: Plan) -> Graph:
        """The step's graph before it is laid out: every sharding whole, over the plan's mesh.

        Of the plan only the mesh, the remat policy, the platform of its topology and what the model assigns in place
        matter.
        """

    def tags_under(self, remat: Remat | None) -> Mapping[str, Sequence[str]]:
        """The computed values that the model tags, by the tag's path: two names of the same values."""

    def calls_under(self, remat: Remat | None) -> Mapping[str, str]:
        """By the path of what a call gives, that of what is computed in it: two names of the same value."""

    def given_under(self, plan: Plan) -> Mapping[str, Sharding]:
        """How values lie that the model itself lays out on the plan's mesh, by path: nothing else reads them."""

    def lies(self, plan: Plan) -> Mapping[str, Sharding] | None:
        """How the step's values come to lie under a complete plan, by path, nearly; None where it is not known.

        Raises ``PlanError`` for a plan that is not legal.
        """

    def laid(self, plan: Plan) -> Graph | None:
        """The graph after propagation under a complete plan, named as ``graph``'s; None where it is not known.

        Raises ``PlanError`` for a plan that is not legal.
        """

    def estimate(self, plan: Plan, *, nearly: bool = False) -> Estimate:
        """The price of a complete plan: what ``mw.estimate`` says. Raises ``PlanError`` for one that is not legal.

        Where it need only be known ``nearly`` it may be so, and then says it (``SKETCHED``, or that XLA's partitioner
        gets a convolution wrong).
        """

    def foresee(self, plan: Plan) -> None:
        """Is told, while there is nothing else to do, of a plan that is likely to be the answer: what is made ready
        for it changes nothing. Raises ``PlanError`` for one that is not legal.
        """


def decided_remat(plan: Plan) -> Remat | None:
    """The remat policy that a plan says; None where it says none, or leaves it open."""
    return plan.remat if plan.remat is not None and plan.remat.policy != "auto" else None


def _nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Rematerialised:
    """A workload under one remat policy, which decides what values it has; ``before`` is called before long work."""

    workload: Workload
    remat: Remat | None
    before: Callable[[], None] = _nothing

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What a plan with the policy can name."""
        return self.workload.tensors_under(self.remat)

    def tensors_under(self, remat: Remat | None) -> tuple[Tensor, ...]:
        """What a plan with another policy can name."""
        return self.workload.tensors_under(remat)

    @property
    def remat_policies(self) -> tuple[str, ...]:
        """The policies worth trying."""
        return self.workload.remat_policies

    def graph(self, plan: Plan) -> Graph:
        """The graph under the plan's own policy."""
        return self.workload.graph(plan)

    def tags_under(self, remat: Remat | None) -> Mapping[str, Sequence[str]]:
        """The computed values that the model tags with another policy, by the tag's path."""
        return self.workload.tags_under(remat)

    def calls_under(self, remat: Remat | None) -> Mapping[str, str]:
        """What calls give with another policy, and what is computed in them."""
        return self.workload.calls_under(remat)

    def given_under(self, plan: Plan) -> Mapping[str, Sharding]:
        """How values lie that the model itself lays out."""
        return self.workload.given_under(plan)

    def lies(self, plan: Plan) -> Mapping[str, Sharding] | None:
        """How the values lie under a plan."""
        self.before()
        return self.workload.lies(plan)

    def laid(self, plan: Plan) -> Graph | None:
        """The graph under a plan."""
        self.before()
        return self.workload.laid(plan)

    def estimate(self, plan: Plan, *, nearly: bool = False) -> Estimate:
        """The price of a plan."""
        self.before()
        return self.workload.estimate(plan, nearly=nearly)

    def foresee(self, plan: Plan) -> None:
        """Makes ready what the answer takes."""
        self.before()
        self.workload.foresee(plan)


def lying(graph: Graph) -> dict[str, Sharding]:
    """How the values of a laid out graph that have a path lie, by path."""
    found: dict[str, Sharding] = {}
    for each, op, _ in graph.walk():
        for value, path in op.named:
            sharding = each.values[value].sharding
            if sharding is not None:
                found[path] = tuple(_whole(axes, graph.mesh) for axes in sharding)
    return found


def _whole(axes: Axes, sizes: Mapping[str, int]) -> Axes:
    """Axes with each one in the place of its parts (``x:(1)2``, ``x:(2)4``) where all of them follow each other."""
    names = tuple(dict.fromkeys(axis.partition(":")[0] for axis in axes))
    parts = tuple(part for name in names for part in sizes if part.partition(":")[0] == name)
    return names if parts == tuple(axes) else tuple(axes)
