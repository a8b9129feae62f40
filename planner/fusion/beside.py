"""Which values operations number by number connect: what is read with what is made of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from ..graph import Graph
from .nature import BARRIER, ELEMENTWISE


def beside(graph: Graph, start: Iterable[int]) -> dict[int, list[int]]:
    """The values of one shape that stand beside each value, on the other side of such an operation: those of the shapes
    that ``start`` has, for no way from there leads to others.
    """
    values = graph.values
    shapes = {values[value].shape for value in start}
    found: dict[int, list[int]] = defaultdict(list)
    for op in graph.ops:
        if op.kind in ELEMENTWISE:
            made = op.results[0]
            shape = values[made].shape
            pairs = [(made, read) for read in op.operands if values[read].shape == shape] if shape in shapes else ()
        elif op.kind == BARRIER:
            pairs = [pair for pair in zip(op.results, op.operands, strict=False) if values[pair[0]].shape in shapes]
        else:
            continue
        for made, read in pairs:
            found[made].append(read)
            found[read].append(made)
    return dict(found)
