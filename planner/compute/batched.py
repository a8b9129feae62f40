"""How batches of small products lie: what each one reads and makes fills lanes and rows, however few numbers it has.

The compiler keeps the dims of a batch out of registers: 16384 products of 9 by 32 numbers lie as 16 by 128 each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..graph import Graph, Op
from ..images import tile_rows
from ..kernels import Kernel
from .work import FREE, LANES, Work, padded_elements, round_up

PRODUCT = "dot_general"
Shape = tuple[int, ...]


def growth_of(graph: Graph) -> dict[Shape, float]:
    """How much larger than where they pad least what batches of products read and make is, by shape, if at all."""
    found: dict[Shape, float] = {}
    for op in graph.ops:
        if op.kind == PRODUCT and op.attributes.get("lhs_batching_dimensions"):
            for shape, batch in _sides(graph, op):
                least, one = padded_elements(shape), _tiles(shape[batch:])
                if one * math.prod(shape[:batch]) > least:
                    found[shape] = one * math.prod(shape[:batch]) / least
    return found


def grown(graph: Graph, kernel: Kernel, work: Work, growth: Mapping[Shape, float]) -> Work:
    """The work of a kernel whose values lie so."""
    if work.kind == FREE:
        return work
    reads = [int(size * growth.get(graph.shape(v), 1.0)) for v, size in zip(kernel.reads, work.reads, strict=True)]
    writes = [int(size * growth.get(graph.shape(v), 1.0)) for v, size in zip(kernel.writes, work.writes, strict=True)]
    more = sum((*reads, *writes)) / max(sum((*work.reads, *work.writes)), 1)
    return replace(
        work,
        reads=tuple(reads),
        writes=tuple(writes),
        spill_bytes=int(work.spill_bytes * more),
        space_bytes=int(work.space_bytes * more),
        registers=work.registers * more,
    )


def _sides(graph: Graph, op: Op) -> Iterator[tuple[Shape, int]]:
    """The shapes of operands and result, those with the batch's dims first, and how many these are."""
    said = op.attributes
    many = len(said["lhs_batching_dimensions"])
    for value, name in zip(op.operands, ("lhs", "rhs"), strict=False):
        if tuple(said[f"{name}_batching_dimensions"]) == tuple(range(many)):
            yield graph.shape(value), many
    yield graph.shape(op.results[0]), many


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
