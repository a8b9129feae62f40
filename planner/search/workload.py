"""What the search asks of a step: its tensors, its graph, the price of a plan. A backend answers."""

from __future__ import annotations

from typing import Protocol

from ...dsl.plan import Plan
from ...dsl.tensors import Tensor
from ..estimate.figures import Estimate
from ..graph import Graph


class Workload(Protocol):
    """A step and its abstract arguments, as the planner sees them."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Everything that a plan can name: arguments, results, tagged values, and the values under ``ops/``."""

    @property
    def remat_policies(self) -> tuple[str, ...]:
        """The policies worth trying; ``("none",)`` where the step marks no blocks."""

    def graph(self, plan: Plan) -> Graph:
        """The step's graph before it is laid out: every sharding whole, over the plan's mesh.

        Of the plan only the mesh, the remat policy, the platform of its topology and what the model assigns in place
        matter.
        """

    def estimate(self, plan: Plan) -> Estimate:
        """The price of a complete plan: what ``mw.estimate`` says. Raises ``PlanError`` for one that is not legal."""
