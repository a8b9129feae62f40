"""Which values operations number by number connect: what is read with what is made of it."""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import Graph, Op
from .nature import BARRIER, ELEMENTWISE


def beside(graph: Graph) -> dict[int, list[int]]:
    """The values of one shape that stand beside each value, on the other side of such an operation."""
    found: dict[int, list[int]] = {}
    for op in graph.ops:
        if op.kind in ELEMENTWISE or op.kind == BARRIER:
            for made, read in _alike(graph, op):
                found.setdefault(made, []).append(read)
                found.setdefault(read, []).append(made)
    return found


def _alike(graph: Graph, op: Op) -> Iterator[tuple[int, int]]:
    """What an operation makes, with what it reads to that end, of one shape."""
    if op.kind == BARRIER:
        yield from zip(op.results, op.operands, strict=False)
    else:
        made = op.results[0]
        yield from ((made, read) for read in op.operands if graph.shape(read) == graph.shape(made))
