"""A gather or scatter as loops: which of its tensors have each, and the plans of its split."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from ....dsl.records import record
from ...graph import Axes, Factors, Sharding, Value
from ..factors import layout_of
from ..layout import Mesh, local_shape
from ..reshard import SLICE, reshard_steps

Split = Mapping[int, Axes]
Sizes = tuple[int, int]
OPERAND, INDICES, SLICES, RESULT = range(4)


@dataclass(frozen=True, kw_only=True)
class Lookup:
    """The loops of one gather or scatter. ``slices`` are a gather's result or a scatter's updates.

    ``dims`` are the factors of the operand's dims, of the indices', the slices' and the result's, ``values`` the global
    tensors.
    """

    factors: Factors
    dims: tuple[tuple[tuple[int, ...], ...], ...]
    values: tuple[Value, ...]
    mesh: Mesh
    is_gather: bool

    @cached_property
    def _in(self) -> tuple[frozenset[int], ...]:
        fixed = {*self.factors.replicated, *self.factors.permutation}
        return tuple(frozenset(f for dim in dims for f in dim if f not in fixed) for dims in self.dims[:3])

    @cached_property
    def parallel(self) -> tuple[int, ...]:
        """The factors of all: batch dims of operand and indices."""
        return tuple(sorted(self._in[OPERAND] & self._in[INDICES] & self._in[SLICES]))

    @cached_property
    def through(self) -> tuple[int, ...]:
        """Those of the operand's dims of which every slice has all."""
        return tuple(sorted((self._in[OPERAND] & self._in[SLICES]) - self._in[INDICES]))

    @cached_property
    def looked_up(self) -> tuple[int, ...]:
        """Those of the operand's dims of which every slice has one place."""
        return tuple(sorted(self._in[OPERAND] - self._in[INDICES] - self._in[SLICES]))

    @cached_property
    def batch(self) -> tuple[int, ...]:
        """Those of the indices: one slice for each."""
        return tuple(sorted((self._in[INDICES] & self._in[SLICES]) - self._in[OPERAND]))

    def order(self, which: int) -> list[int]:
        """The factors of a tensor, dim by dim."""
        return [f for dim in self.dims[which] for f in dim]

    def layout(self, split: Split, which: int) -> Sharding:
        """A tensor's layout under a split of its loops."""
        found = layout_of(self.dims[which], split, self.factors.sizes, self.mesh)
        return found if found is not None else ((),) * len(self.dims[which])

    def num_bytes(self, layout: Sharding, which: int) -> int:
        """What one device holds of a tensor."""
        value = self.values[which]
        return (math.prod(local_shape(value.shape, layout, self.mesh)) * value.bits + 7) // 8


@record(frozen=True, slots=True, kw_only=True)
class Ask:
    """The splits that the tensors of one group of devices have; of a gather ``slices`` are what is asked for.

    ``axes`` are those of the group, ``result`` how a scatter's result is asked for.
    """

    operand: Split
    indices: Split
    slices: Split
    result: Split
    axes: Axes


@record(frozen=True, slots=True)
class After:
    """What is done with a result: summed over ``axes`` if any, then brought into the layout ``split``."""

    split: Split
    axes: Axes = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way: the splits that operand, indices and updates pass through, how the result is made, and what follows."""

    paths: tuple[tuple[Split, ...], tuple[Split, ...], tuple[Split, ...]]
    made: Split
    after: tuple[After, ...] = field(default_factory=tuple)

    def within(self, ask: Ask, groups: Sequence[Split], after: Iterable[After]) -> Plan:
        """The plan for a group that was asked ``ask``, the groups' own split of every tensor put before."""
        asked = (ask.operand, ask.indices, ask.slices)
        first, second, third = (
            tuple(joined(group, split) for split in (own, *path))
            for group, own, path in zip(groups, asked, self.paths, strict=False)
        )
        made = groups[-1]
        inner = (replace(step, split=joined(made, step.split)) for step in self.after)
        return Plan(paths=(first, second, third), made=joined(made, self.made), after=(*inner, *after))


Solve = Callable[[Ask], Plan]


def joined(first: Split, second: Split) -> dict[int, Axes]:
    """Two splits of the same factors, the first one major."""
    found = dict(first)
    for factor, axes in second.items():
        found[factor] = (*found[factor], *axes) if factor in found else axes
    return found


def cost(lookup: Lookup, ask: Ask, plan: Plan) -> Sizes:
    """What XLA orders its ways by: the most that the operation or a collective has, then the bytes moved."""
    largest, moved, reads = 0, 0, list[int]()
    count = 2 if lookup.is_gather else 3
    asked = (ask.operand, ask.indices, ask.slices)
    for which, (start, path) in enumerate(zip(asked[:count], plan.paths, strict=False)):
        sizes = _moves(lookup, (start, *path), which)
        largest, moved = max(largest, *(a + b for a, b in sizes), 0), moved + sum(max(pair) for pair in sizes)
        reads.append(lookup.num_bytes(lookup.layout(path[-1] if path else start, which), which))
    made = lookup.num_bytes(lookup.layout(plan.made, RESULT), RESULT)
    largest, now = max(largest, sum(reads) + (made if lookup.is_gather else 0)), plan.made
    for step in plan.after:
        if step.axes:
            size = lookup.num_bytes(lookup.layout(now, RESULT), RESULT)
            largest, moved = max(largest, size), moved + 2 * size
        sizes = _moves(lookup, (now, step.split), RESULT)
        largest, moved = max(largest, *(a + b for a, b in sizes), 0), moved + sum(max(pair) for pair in sizes)
        now = step.split
    return largest, moved


def _moves(lookup: Lookup, path: Sequence[Split], which: int) -> list[Sizes]:
    """The bytes before and after each collective on a way from layout to layout."""
    sizes: list[Sizes] = []
    for one, other in itertools.pairwise([lookup.layout(split, which) for split in path]):
        before = one
        for step in reshard_steps(one, other, lookup.mesh):
            if step.kind != SLICE:
                sizes.append((lookup.num_bytes(before, which), lookup.num_bytes(step.layout, which)))
            before = step.layout
    return sizes
