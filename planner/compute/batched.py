"""How batches of small products lie: what each one reads and makes fills lanes and rows, however few numbers it has.

The compiler keeps the dims of a batch out of registers: 16384 products of 9 by 32 numbers lie as 16 by 128 each. So it
does with a dim of which every other number is taken, as associative scans do.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ..fusion.beside import beside
from ..fusion.nature import REDUCE, is_of_vector
from ..graph import Graph, Op
from ..images import tile_rows
from ..kernels import Kernel
from .work import FREE, LANES, Work, padded_elements, round_up

PRODUCT, SLICE, PAD = "dot_general", "slice", "pad"
GROWING = frozenset({PRODUCT, SLICE, PAD})
"""Without any of these no value is larger than where it pads least."""

STEPS = MappingProxyType({SLICE: "strides", PAD: "interior_padding"})
Shape = tuple[int, ...]


def growth_of(graph: Graph) -> dict[int, float]:
    """How much larger than where they pad least values lie for batches of products, by their numbers, if at all.

    Such a product's operands and result lie so, but for one with a vector, and what is taken apart number by number
    along a dim; and all that operations number by number connect with them.
    """
    batches = [op for op in graph.of_kind(PRODUCT) if op.attributes.get("lhs_batching_dimensions")]
    found = {} if graph.kinds.isdisjoint(STEPS) else dict(_scanned(graph))
    if not batches and not found:
        return {}
    products = [op for op in batches if not is_of_vector(graph, op)]
    summed = _summed(graph, products) if products else frozenset[int]()
    for op in products:
        for value, batch in _sides(graph, op) if op.results[0] not in summed else ():
            shape = graph.shape(value)
            least, one = padded_elements(shape), _tiles(shape[batch:])
            if one * math.prod(shape[:batch]) > least:
                found[value] = max(one * math.prod(shape[:batch]) / least, found.get(value, 1.0))
    return _followed(graph, found) if found else found


def _scanned(graph: Graph) -> Iterator[tuple[int, float]]:
    """The values of which every other number along a dim is taken, or between whose numbers others are put."""
    for op in graph.of_kind(SLICE, PAD):
        if op.operands:
            steps = op.attributes.get(STEPS[op.kind], ())
            dims = [dim for dim, step in enumerate(steps) if step > (op.kind == SLICE)]
            for value in (op.operands[0], op.results[0]) if dims else ():
                shape = graph.shape(value)
                one = _tiles(tuple(size for dim, size in enumerate(shape) if dim not in dims))
                least = padded_elements(shape)
                grown_to = one * math.prod([shape[dim] for dim in dims])
                if grown_to > least > 0:
                    yield value, grown_to / least


def grown(kernel: Kernel, work: Work, growth: Mapping[int, float]) -> Work:
    """The work of a kernel whose values lie so."""
    if work.kind == FREE or growth.keys().isdisjoint((*kernel.reads, *kernel.writes)):
        return work
    reads = [int(size * growth.get(v, 1.0)) for v, size in zip(kernel.reads, work.reads, strict=True)]
    writes = [int(size * growth.get(v, 1.0)) for v, size in zip(kernel.writes, work.writes, strict=True)]
    more = sum((*reads, *writes)) / max(sum((*work.reads, *work.writes)), 1)
    return replace(
        work,
        reads=tuple(reads),
        writes=tuple(writes),
        spill_bytes=int(work.spill_bytes * more),
        space_bytes=int(work.space_bytes * more),
        registers=work.registers * more,
    )


def _summed(graph: Graph, products: Sequence[Op]) -> frozenset[int]:
    """Which of these products only a sum over their batch reads: the compiler makes one product of each."""
    batch = {op.results[0]: len(op.attributes["lhs_batching_dimensions"]) for op in products}
    left = set(graph.results)
    for op in graph.ops:
        for value in () if batch.keys().isdisjoint(op.operands) else op.operands:
            if value in batch and not _sums(op, batch[value]):
                left.add(value)
    return frozenset(batch.keys() - left)


def _sums(op: Op, batch: int) -> bool:
    """Whether an operation adds up what it reads over all of so many dims, the first."""
    added = op.kind == REDUCE and op.attributes.get("reducer") == "add"
    return added and set(range(batch)).issubset(op.attributes["dimensions"])


def _followed(graph: Graph, found: Mapping[int, float]) -> dict[int, float]:
    """The same with all that operations number by number connect with these; each value is gone over once."""
    near = beside(graph, found)
    followed: dict[int, float] = {}
    for start in sorted(found, key=found.__getitem__, reverse=True):
        waiting = [start]
        while waiting:
            value = waiting.pop()
            if value not in followed:
                followed[value] = found[start]
                waiting += near.get(value, ())
    return followed


def _sides(graph: Graph, op: Op) -> Iterator[tuple[int, int]]:
    """Operands and result, those with the batch's dims first, and how many these are."""
    said = op.attributes
    many = len(said["lhs_batching_dimensions"])
    for value, name in zip(op.operands, ("lhs", "rhs"), strict=False):
        if tuple(said[f"{name}_batching_dimensions"]) == tuple(range(many)):
            yield value, many
    yield op.results[0], many


def _tiles(shape: Shape) -> int:
    """Elements of one of a batch with lanes and rows filled up; what has no rows may have the batch's."""
    large = [size for size in shape if size > 1]
    if len(large) < 2:
        return math.prod(shape)
    return min(
        math.prod(large) // (lane * row) * round_up(lane, LANES) * round_up(row, tile_rows(row, 1))
        for i, lane in enumerate(large)
        for j, row in enumerate(large)
        if i != j
    )
