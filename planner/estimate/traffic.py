"""The collectives of a device's graph, each priced by where its groups lie on the machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ...dsl.plan import Mesh
from ..collectives import price
from ..device_order import device_numbers
from ..graph import Axes, Graph, Op
from ..kinds import ALL_REDUCE, COLLECTIVE_PERMUTE, GATHERED, RAGGED_ALL_TO_ALL, RING_PADDING, ROUNDED
from ..links import OUTER
from ..network import Network
from ..partition.layout import ways
from ..placement import Placement
from ..price import Price
from ..routing import Traffic, price_of, traffic
from ..topology import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """What collectives cost on one network; alike ones are priced once, and permutes of one way routed once."""

    network: Network
    placements: dict[Axes, Placement] = field(default_factory=dict)
    prices: dict[tuple[object, ...], Price] = field(default_factory=dict)
    routed: dict[tuple[object, ...], Traffic] = field(default_factory=dict)

    @property
    def is_tpu(self) -> bool:
        """Whether it is a network of TPUs."""
        return self.network.machine.platform == "tpu"

    def placement(self, axes: Axes) -> Placement:
        """Where a collective over these axes lies."""
        if axes not in self.placements:
            self.placements[axes] = self.network.placement(axes)
        return self.placements[axes]

    def price(self, op: Op, kind: str, num_bytes: int) -> Price:
        """What one run of a collective takes; ``num_bytes`` is what one device holds of it."""
        axes = axes_of(op)
        key = (kind, axes, num_bytes, _way(op))
        if key not in self.prices:
            self.prices[key] = self._priced(op, kind, axes, num_bytes)
        return self.prices[key]

    def crosses_slices(self, axes: Axes) -> bool:
        """Whether a collective over these axes leaves a slice or a node."""
        return any(span.dim in OUTER for span in self.placement(axes).spans)

    def _priced(self, op: Op, kind: str, axes: Axes, num_bytes: int) -> Price:
        if kind != COLLECTIVE_PERMUTE:
            return price(kind, num_bytes, self.placement(axes))
        key = (axes, _way(op))
        if key not in self.routed:
            self.routed[key] = traffic(self.network.machine, self._pairs(op, axes))
        return price_of(self.network.machine, self.routed[key], num_bytes)

    def _pairs(self, op: Op, axes: Axes) -> np.ndarray:
        """The device numbers, from and to, of a permute: from layout to layout, else each to the next along its axes.

        Between layouts a device sends to the one whose position along the new axes is its own along the old ones.
        ``around`` says that the last sends to the first.
        """
        old, new, _ = _way(op)
        if old or new:
            cut = self.network.in_parts((*old, *new))
            old, new = cut.parts(old), cut.parts(new)
            before = (*old, *(axis for axis in new if axis not in old))
            after = (*new, *(axis for axis in old if axis not in new))
            return np.stack([cut.groups(before).ravel(), cut.groups(after).ravel()], axis=-1)
        groups = self.network.groups(axes)
        pairs = np.stack([groups, np.roll(groups, -1, axis=1)], axis=-1)
        return (pairs if op.attributes.get("around") else pairs[:, :-1]).reshape(-1, 2)


MOST_TARIFFS = 8


@dataclass(frozen=True, slots=True)
class Tariffs:
    """The last tariffs, by the machine and how a mesh lies over it."""

    known: dict[tuple[object, ...], Tariff] = field(default_factory=dict)

    def of(self, mesh: Mesh, machine: Machine, parts: Mapping[str, int]) -> Tariff:
        """What ``tariff`` gives, with the prices that were asked for before."""
        made = tariff(mesh, machine, parts)
        key = machine, tuple(made.network.mesh.items()), made.network.numbers.tobytes()
        if key not in self.known:
            while len(self.known) >= MOST_TARIFFS:
                del self.known[next(iter(self.known))]
            self.known[key] = made
        return self.known[key]


def tariff(mesh: Mesh, machine: Machine, parts: Mapping[str, int]) -> Tariff:
    """The tariff of the plan's mesh over the machine; ``parts`` are its axes as a graph cuts them, major first.

    Raises ``PlanError`` if the mesh has holes or does not fit.
    """
    numbers = device_numbers(mesh, machine)
    sizes = dict(parts) or {axis: size or 1 for axis, size in mesh.sizes.items()}
    return Tariff(network=Network(machine=machine, mesh=sizes, numbers=numbers.reshape(tuple(sizes.values()))))


def _way(op: Op) -> tuple[Axes, Axes, bool]:
    """Which way a permute goes: the axes of the layouts before and after, on any dims, none where it does not go from
    one to another; or round a ring.
    """
    said, goes = op.attributes, "source" in op.attributes and "target" in op.attributes
    old, new = (tuple([axis for dim in said[end] for axis in dim]) if goes else () for end in ("source", "target"))
    return old, new, bool(said.get("around"))


def axes_of(op: Op) -> Axes:
    """The mesh axes that a collective runs over."""
    return tuple(op.attributes.get("axes", ()))


def held_bytes(graph: Graph, op: Op, *, is_tpu: bool = False) -> int:
    """What one device holds of a collective: the larger of its operands and its results.

    Of an uneven all-to-all what it sends where all get the same: no more than its rows, or the room for what arrives.
    Of sums that round, and of those that gather, which may, what they leave, of a TPU all that leave all: what these
    leave narrower they are sent so (CPUs are sent what they add up). A ring's pieces with what pads them.
    """
    if ROUNDED in op.attributes or GATHERED in op.attributes or (is_tpu and op.kind == ALL_REDUCE):
        return _bytes(graph, op.results)
    if op.kind.replace("_", "-") == RAGGED_ALL_TO_ALL:
        return min(_bytes(graph, op.operands[:1]), _bytes(graph, op.results))
    return max(_bytes(graph, op.operands), _bytes(graph, op.results)) + int(op.attributes.get(RING_PADDING, 0))


def group_size(mesh: Mapping[str, int], axes: Iterable[str]) -> int:
    """How many devices a collective over these axes joins."""
    return ways(axes, mesh)


def _bytes(graph: Graph, values: Iterable[int]) -> int:
    return sum(graph.values[value].num_bytes for value in values)
