"""Gathers and scatters: what is split along the indexed dims, the rows passed through, or the indices."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ..graph import Axes, Factors, Sharding, Value
from .elementwise import replicate
from .factors import Split, layout_of, split_of
from .layout import Mesh, local_shape, ways
from .reshard import SLICE, reshard_steps
from .strategy import Asked, PartialSum, Strategy


def gather_rule(asked: Asked) -> Strategy:
    """A gather; where the indexed dim is split, each device looks up its own rows and the sum is the whole."""
    return _Indexed(asked, reads_operand=True).strategy()


def scatter_rule(asked: Asked) -> Strategy:
    """A scatter; split updates leave partial sums of the whole operand, a split indexed dim none."""
    return _Indexed(asked, reads_operand=False).strategy()


@dataclass(frozen=True, slots=True)
class _Way:
    """One split of the loops with what it costs: the largest tensor, then the bytes moved."""

    strategy: Strategy
    largest: int
    moved: int


class _Indexed:
    """One gather or scatter with the factors that its tensors share."""

    def __init__(self, asked: Asked, reads_operand: bool):
        self.asked = asked
        self.is_gather = reads_operand
        self.mesh: Mesh = asked.mesh

    def strategy(self) -> Strategy:
        factors = self.asked.op.factors
        if factors is None:
            return replicate(self.asked)
        found = [way for way in (self._way(factors, split) for split in self._splits(factors)) if way]
        if not found:
            return replicate(self.asked)
        return min(found, key=lambda way: (way.largest, way.moved)).strategy

    def _splits(self, factors: Factors) -> Iterator[Split]:
        """Axes that always split together, each such set along each factor that some tensor splits by it.

        Where tensors split different factors by a set, as many ways as another axis has, that axis may take one of
        them: a permute between the two is cheaper than a gather.
        """
        blocks = self._blocks(factors)
        choices = [found or (-1,) for found in blocks.values()]
        for picked in product(*choices):
            chosen = dict(zip(blocks, picked, strict=True))
            yield _joined(chosen)
            for axes, factor in chosen.items():
                for axis in self._equal_axes(axes):
                    if not any(axis in own and own != (axis,) for own in chosen):
                        yield from (_joined({**chosen, (axis,): f}) for f in blocks[axes] if f != factor)

    def _blocks(self, factors: Factors) -> dict[Axes, tuple[int, ...]]:
        """Sets of axes that always split together, and the factors that tensors split by them."""
        offered: dict[str, tuple[tuple[int, int], ...]] = {}
        tensors = (*zip(factors.operands, self.asked.operands, strict=False),)
        for number, (dims, layout) in enumerate(tensors):
            for factor, axes in (split_of(dims, layout, factors.sizes, self.mesh) or {}).items():
                for axis in axes:
                    offered[axis] = (*offered.get(axis, ()), (number, factor))
        together: dict[tuple[tuple[int, int], ...], Axes] = {}
        for axis, seen in offered.items():
            together[seen] = (*together.get(seen, ()), axis)
        replicated = set(factors.replicated)
        return {axes: tuple(sorted({f for _, f in seen} - replicated)) for seen, axes in together.items()}

    def _equal_axes(self, axes: Axes) -> Iterator[str]:
        """Other axes that split a tensor as many ways as these."""
        parts = ways(axes, self.mesh)
        return (axis for axis, size in self.mesh.items() if size == parts > 1 and axis not in axes)

    def _way(self, factors: Factors, split: Split) -> _Way | None:
        operands = _layouts(factors.operands, split, factors, self.mesh)
        made = _layouts(factors.results, split, factors, self.mesh)
        if operands is None or made is None:
            return None
        axes = self._summed(factors, split)
        strategy = Strategy(
            operands=operands,
            made=made,
            sums=(PartialSum(axes),) if axes else (),
            attributes=self._attributes(operands),
        )
        return _Way(strategy, *self._cost(strategy))

    def _summed(self, factors: Factors, split: Split) -> Axes:
        """Axes along which the results are partial: split loops that no dim of the result has."""
        seen = {f for dims in factors.results[0] for f in dims}
        return tuple(axis for f, axes in split.items() if f not in seen for axis in axes)

    def _attributes(self, operands: Sequence[Sharding]) -> dict[str, tuple[int, ...]]:
        if not self.is_gather:
            return {}
        sizes = self.asked.op.attributes.get("slice_sizes")
        shape = self.asked.reads[0].shape
        if sizes is None:
            return {}
        part = local_shape(shape, operands[0], self.mesh)
        return {"slice_sizes": tuple(p if s == w else s for s, w, p in zip(sizes, shape, part, strict=True))}

    def _cost(self, strategy: Strategy) -> tuple[int, int]:
        """What XLA compares: an operation's tensors at most, those written in place once, then bytes moved."""
        asked = self.asked
        largest, moved = 0, 0
        tensors = [*zip(asked.reads, asked.operands, strategy.operands, strict=True)]
        tensors += [*zip(asked.makes, strategy.made, asked.results, strict=True)]
        for value, before, after in tensors:
            for step in reshard_steps(before, after, self.mesh):
                if step.kind != SLICE:
                    sides = [_part_bytes(value, layout, self.mesh) for layout in (before, step.layout)]
                    largest, moved = max(largest, sum(sides)), moved + max(sides)
                before = step.layout
        made = _part_bytes(asked.makes[0], strategy.made[0], self.mesh)
        read = [_part_bytes(v, layout, self.mesh) for v, layout in zip(asked.reads, strategy.operands, strict=True)]
        total = sum(read) + (made if self.is_gather else 0)
        return max(largest, total, made), moved + (2 * made if strategy.sums else 0)


def _joined(chosen: Mapping[Axes, int]) -> Split:
    """Factors split by sets of axes; -1 is none."""
    split: Split = {}
    for axes, factor in chosen.items():
        if factor >= 0:
            split[factor] = (*split.get(factor, ()), *axes)
    return split


def _layouts(
    rules: Sequence[Sequence[tuple[int, ...]]], split: Split, factors: Factors, mesh: Mesh
) -> tuple[Sharding, ...] | None:
    found = [layout_of(dims, split, factors.sizes, mesh) for dims in rules]
    return None if any(layout is None for layout in found) else tuple(layout or () for layout in found)


def _part_bytes(value: Value, layout: Sharding, mesh: Mesh) -> int:
    return math.prod(local_shape(value.shape, layout, mesh)) * value.bits // 8
