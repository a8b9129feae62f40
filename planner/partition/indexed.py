"""Gathers and scatters: what is split along the indexed dims, the rows passed through, or the indices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from ..graph import Axes, Factors, Sharding
from .elementwise import replicate
from .factors import Split, layout_of, split_of
from .layout import Mesh, local_shape
from .reshard import SLICE, reshard_steps, step_bytes
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
        ways = [way for way in (self._way(factors, split) for split in self._splits(factors)) if way]
        if not ways:
            return replicate(self.asked)
        return min(ways, key=lambda way: (way.largest, way.moved)).strategy

    def _splits(self, factors: Factors) -> Iterator[Split]:
        """Axes that always split together, each such set along each factor that some tensor splits by it."""
        offered: dict[str, tuple[tuple[int, int], ...]] = {}
        tensors = (*zip(factors.operands, self.asked.operands, strict=False),)
        tensors += (*zip(factors.results, self.asked.results, strict=True),)
        for number, (dims, layout) in enumerate(tensors):
            for factor, axes in (split_of(dims, layout, factors.sizes, self.mesh) or {}).items():
                for axis in axes:
                    offered[axis] = (*offered.get(axis, ()), (number, factor))
        blocks: dict[tuple[tuple[int, int], ...], Axes] = {}
        for axis, seen in offered.items():
            blocks[seen] = (*blocks.get(seen, ()), axis)
        replicated = set(factors.replicated)
        choices = [sorted({f for _, f in seen} - replicated) or [-1] for seen in blocks]
        for picked in product(*choices):
            split: Split = {}
            for axes, factor in zip(blocks.values(), picked, strict=True):
                if factor >= 0:
                    split[factor] = (*split.get(factor, ()), *axes)
            yield split

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
        asked = self.asked
        largest, moved = 0, 0
        tensors = [*zip(asked.reads, asked.operands, strategy.operands, strict=True)]
        tensors += [*zip(asked.makes, strategy.made, asked.results, strict=True)]
        for value, before, after in tensors:
            for step in reshard_steps(before, after, self.mesh):
                if step.kind != SLICE:
                    size = step_bytes(step, before, value.shape, value.bits, self.mesh)
                    largest, moved = max(largest, 2 * size), moved + size
                before = step.layout
        total = 0
        for value, layout in (*zip(asked.reads, strategy.operands, strict=True), (asked.makes[0], strategy.made[0])):
            total += _part_bytes(value.shape, value.bits, layout, self.mesh)
        if strategy.sums:
            summed = _part_bytes(asked.makes[0].shape, asked.makes[0].bits, strategy.made[0], self.mesh)
            largest, moved = max(largest, 2 * summed), moved + 2 * summed
        return max(largest, total), moved


def _layouts(
    rules: Sequence[Sequence[tuple[int, ...]]], split: Split, factors: Factors, mesh: Mesh
) -> tuple[Sharding, ...] | None:
    found = [layout_of(dims, split, factors.sizes, mesh) for dims in rules]
    return None if any(layout is None for layout in found) else tuple(layout or () for layout in found)


def _part_bytes(shape: tuple[int, ...], bits: int, layout: Sharding, mesh: Mesh) -> int:
    number = bits
    for size in local_shape(shape, layout, mesh):
        number *= size
    return number // 8
