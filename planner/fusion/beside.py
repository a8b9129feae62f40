"""Which values operations number by number connect: what is read with what is made of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..graph import Graph, Op
from .nature import BARRIER, ELEMENTWISE


def beside(graph: Graph) -> dict[int, list[int]]:
    """The values of one shape that stand beside each value, on the other side of such an operation."""
    found: dict[int, list[int]] = defaultdict(list)
    for op in graph.ops:
        if op.kind in ELEMENTWISE or op.kind == BARRIER:
            for made, read in _alike(graph, op):
                found[made].append(read)
                found[read].append(made)
    return dict(found)


def _alike(graph: Graph, op: Op) -> Sequence[tuple[int, int]]:
    """What an operation makes, with what it reads to that end, of one shape."""
    if op.kind == BARRIER:
        return list(zip(op.results, op.operands, strict=False))
    values, made = graph.values, op.results[0]
    shape = values[made].shape
    return [(made, read) for read in op.operands if values[read].shape == shape]
