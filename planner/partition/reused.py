"""What partitioning found of operations that any other graph over the same mesh may have again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..graph import Axes, Factors, Sharding, Value
from .layout import Mesh
from .reshard import Step
from .strategy import Strategy
from .target import Target

Attributes = Mapping[str, Any]
Written = tuple[Step, Attributes]


@dataclass(frozen=True, slots=True)
class Reused:
    """``strategies`` are those of operations by all that their rules are told, ``steps`` those between two layouts with
    their attributes, ``sums`` the attributes of sums over devices, ``joined`` those of operations with what strategies
    say in place of some, by the ``id`` of both: one mapping for all alike, by which alike kernels are known.
    ``parts`` is what one device holds of a value. ``factors`` are the loop nests that keys tell apart by their ``id``,
    ``even`` says by that which have all tensors in step, ``standing`` which operations are computed with their tensors
    as they lie, these by the ``id`` of their parts.
    """

    strategies: dict[object, Strategy] = field(default_factory=dict)
    steps: dict[tuple[Sharding, Sharding], tuple[Written, ...]] = field(default_factory=dict)
    sums: dict[tuple[Axes, str], Attributes] = field(default_factory=dict)
    joined: dict[tuple[int, int], tuple[Attributes, Attributes, Attributes]] = field(default_factory=dict)
    parts: dict[tuple[tuple[int, ...], str, Sharding], Value] = field(default_factory=dict)
    factors: dict[int, Factors] = field(default_factory=dict)
    even: dict[int, bool] = field(default_factory=dict)
    standing: dict[tuple[object, ...], bool] = field(default_factory=dict)

    def with_said(self, attributes: Attributes, said: Attributes) -> Attributes:
        """An operation's attributes with what its strategy says in place of some."""
        if not said:
            return attributes
        key = id(attributes), id(said)
        if key not in self.joined:
            self.joined[key] = attributes, said, {**attributes, **said}
        return self.joined[key][2]


MOST_MESHES, MOST_STRATEGIES = 8, 20_000


@dataclass(frozen=True, slots=True)
class Found:
    """What was found for the last meshes and targets."""

    by_mesh: dict[tuple[tuple[tuple[str, int], ...], Target], Reused] = field(default_factory=dict)

    def of(self, mesh: Mesh, target: Target) -> Reused:
        """What was found for this mesh and target, to be added to."""
        key = tuple(mesh.items()), target
        found = self.by_mesh.get(key)
        if found is None or max(len(found.strategies), len(found.joined), len(found.standing)) > MOST_STRATEGIES:
            while len(self.by_mesh) >= MOST_MESHES:
                del self.by_mesh[next(iter(self.by_mesh))]
            found = self.by_mesh[key] = Reused()
        return found
