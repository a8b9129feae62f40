"""What partitioning found of operations that any other graph over the same mesh may have again."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..graph import Factors, Sharding, Value
from .layout import Mesh
from .reshard import Step
from .strategy import Strategy
from .target import Target


@dataclass(frozen=True, slots=True)
class Reused:
    """``strategies`` are those of operations by all that their rules are told, ``steps`` those between two layouts,
    ``parts`` what one device holds of a value. ``factors`` are the loop nests that keys tell apart by their ``id``,
    ``even`` says by that which have all tensors in step.
    """

    strategies: dict[object, Strategy] = field(default_factory=dict)
    steps: dict[tuple[Sharding, Sharding], tuple[Step, ...]] = field(default_factory=dict)
    parts: dict[tuple[tuple[int, ...], str, Sharding], Value] = field(default_factory=dict)
    factors: dict[int, Factors] = field(default_factory=dict)
    even: dict[int, bool] = field(default_factory=dict)


MOST_MESHES, MOST_STRATEGIES = 8, 20_000


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for the last meshes and targets."""

    by_mesh: dict[tuple[tuple[tuple[str, int], ...], Target], Reused] = field(default_factory=dict)

    def of(self, mesh: Mesh, target: Target) -> Reused:
        """What was found for this mesh and target, to be added to."""
        key = tuple(mesh.items()), target
        found = self.by_mesh.get(key)
        if found is None or len(found.strategies) > MOST_STRATEGIES:
            while len(self.by_mesh) >= MOST_MESHES:
                del self.by_mesh[next(iter(self.by_mesh))]
            found = self.by_mesh[key] = Reused()
        return found
