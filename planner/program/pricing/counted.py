"""All meshes at once with axes of the same sizes, and those that they cover: layouts say of each size along how many
axes a dim is split.

Axes of one size stand for each other. What is sent along some takes what it takes on that of the meshes, and along
those of its axes, where it takes least; a value that is handed on lies along the axes that suit it best, in the order
that does. So none of the meshes takes less, whatever the order of their axes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, permutations, product

from ....dsl.plan import Mesh
from ...estimate.traffic import Tariff, axes_of, tariff
from ...graph import Axes, Op, Sharding, Value
from ...kinds import COLLECTIVE_PERMUTE
from ...network import Network
from ...partition.layout import used, ways
from ...partition.reshard import reshard_steps
from ...price import Price
from ...topology import Machine
from .choices import by_size
from .reshards import Reshards, Way


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastTariff(Tariff):
    """What collectives cost at least on some meshes, whose tariffs are ``several``, along axes of the same sizes, or of
    products of these.
    """

    several: Sequence[Tariff]
    least: dict[tuple[object, ...], Price] = field(default_factory=dict)

    @classmethod
    def of(cls, sizes: Mapping[str, int], meshes: Sequence[Mesh], machine: Machine) -> LeastTariff:
        """That of meshes of a machine, whose axes have these sizes in some order, or products of them."""
        several = [tariff(mesh, machine, {}) for mesh in meshes]
        numbers = several[0].network.numbers.reshape(tuple(sizes.values()))
        return cls(network=Network(machine=machine, mesh=sizes, numbers=numbers), several=several)

    def price(self, op: Op, kind: str, num_bytes: int) -> Price:
        """What one run of a collective takes; a permute at least what it takes to reach a neighbour."""
        parts = sorted(self._part(axis) for axis in axes_of(op))
        key = (kind, tuple(parts), num_bytes)
        if key not in self.least:
            one_by_one = kind == COLLECTIVE_PERMUTE
            found = (
                own.price(Op(kind=op.kind, attributes={"axes": axes}), kind, num_bytes)
                for each in ([[part] for part in dict.fromkeys(parts)] if one_by_one else [parts])
                for own in self.several
                for axes in _axes_like(each, own.network.mesh)
            )
            self.least[key] = min(found, key=lambda price: price.total_s)
        return self.least[key]

    def _part(self, axis: str) -> tuple[int, str]:
        """The size of an axis, and what of it is meant."""
        name, colon, part = axis.partition(":")
        return self.network.mesh[name], colon + part


def _axes_like(parts: Sequence[tuple[int, str]], mesh: Mapping[str, int]) -> Iterator[Axes]:
    """The axes of a mesh that have as many devices together as some that have these sizes. Of parts of axes, the parts
    of those that have these: other axes for others, unless both are parts.
    """
    if not any(part for _, part in parts):
        count = math.prod(size for size, _ in parts)
        for axes in (some for number in range(len(parts) + 1) for some in combinations(mesh, number)):
            if math.prod(mesh[axis] for axis in axes) == count:
                yield axes
        return
    for axes in product(*([axis for axis, own in mesh.items() if own == size] for size, _ in parts)):
        own = tuple(axis + part for axis, (_, part) in zip(axes, parts, strict=True))
        wholes = [axis for axis, (_, part) in zip(axes, parts, strict=True) if not part]
        if len({*own}) == len(own) and all(axes.count(axis) == 1 for axis in wholes):
            yield own


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedReshards(Reshards):
    """What resharding takes at least between layouts that are counted: along whatever axes of these sizes both lie, in
    whatever order these are. ``others`` has the further ways.
    """

    others: dict[tuple[Sharding, Sharding], tuple[Way, ...]] = field(default_factory=dict)

    def seconds(
        self, value: Value, source: Sharding, target: Sharding, *, in_order: bool = True, result: int = 0
    ) -> float:
        """Seconds from one layout to another on the way that takes least."""
        if source == target:
            return 0.0
        first = self._way(source, target)
        every = (first, *self.others[source, target])
        return min(self._took_on(value, way, in_order=in_order, result=result) for way in every)

    def _found(self, source: Sharding, target: Sharding) -> Way:
        """The way on which most stays where it is."""
        ends = sorted(dict.fromkeys(self._ends(source, target)), key=lambda each: -_kept(*each))
        first, *others = (Way(start, reshard_steps(start, end, self.mesh)) for start, end in ends)
        self.others[source, target] = tuple(others)
        return first

    def _ends(self, source: Sharding, target: Sharding) -> Iterator[tuple[Sharding, Sharding]]:
        """Both along axes in one order, those that are alike in every way; of ways that differ in names alone one."""
        alike, is_ordered = by_size(self.mesh), any(len(axes) > 1 for axes in (*source, *target))
        for order in permutations(self.mesh) if is_ordered else [tuple(self.mesh)]:
            start = self._along(source, alike, order)
            for several in product(*map(permutations, alike.values())):
                end = self._along(target, dict(zip(alike, several, strict=True)), order)
                left = {size: iter(axes) for size, axes in alike.items()}
                name = {axis: next(left[self.mesh[axis]]) for axis in dict.fromkeys((*used(start), *used(end)))}
                yield _named(start, name), _named(end, name)

    def _along(self, layout: Sharding, alike: Mapping[int, Sequence[str]], order: Sequence[str]) -> Sharding:
        """A layout that is counted along axes of its own for each dim, in some order: the next of those of a size."""
        left = {size: iter(axes) for size, axes in alike.items()}
        along = ([next(left[self.mesh[axis]]) for axis in axes] for axes in layout)
        return tuple(tuple(sorted(axes, key=order.index)) for axes in along)

    def _is_summed(self, further: Axes, axes: Axes) -> bool:
        return ways(further, self.mesh) == ways(axes, self.mesh)

    def extends(self, layout: Sharding, other: Sharding) -> bool:
        """Whether a layout splits further what another splits."""
        return all({*own} >= {*given} for own, given in zip(layout, other, strict=True))


def _named(layout: Sharding, names: Mapping[str, str]) -> Sharding:
    return tuple(tuple(names[axis] for axis in axes) for axes in layout)


def _kept(start: Sharding, end: Sharding) -> int:
    """How many axes split the same dim, major first, before and after."""
    return sum(sum(a == b for a, b in zip(own, to, strict=False)) for own, to in zip(start, end, strict=True))
