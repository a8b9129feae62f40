"""Where a device's part of an array begins: looked up in a table by the device's number, unless it grows with that.

The number found lies in memory from before the first kernel that takes such a part until the last; parts of one size
along the same axes share it. A list of all devices in their order needs no table: the partitioner multiplies.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...fusion.nature import SLICE
from ...graph import Graph, Op, Value
from ...kernels import Program

INDEX = Value((1,), "s32")
Span = tuple[int, int]
Key = tuple[tuple[str, ...], int]


def indices(program: Program, *, at_start: bool) -> dict[int, Span]:
    """The spans of such numbers, by numbers below those of all values; ``at_start`` if they are found first of all."""
    found: dict[Key, Span] = {}
    for point, kernel in enumerate(program.kernels) if SLICE in program.graph.kinds else ():
        for op in [program.graph.ops[number] for number in kernel.ops]:
            for key in _tables(program.graph, op) if op.kind == SLICE else ():
                first = 0 if at_start else point
                found[key] = (found.get(key, (first, point))[0], point)
    below = -1 - 2 * len(program.graph.values)
    return {below - number: span for number, span in enumerate(found.values())}


def _tables(graph: Graph, op: Op) -> Iterator[Key]:
    """The tables in which a slice looks up where it begins."""
    axes = tuple(op.attributes.get("axes", ()))
    if not axes or axes == tuple(graph.mesh):
        return
    (part,) = op.results
    for dim, (whole, size) in enumerate(zip(graph.shape(op.operands[0]), graph.shape(part), strict=False)):
        if whole != size:
            yield axes, graph.shape(part)[dim]
