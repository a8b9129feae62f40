"""Images whose sums over devices are scattered by features that fill no lanes: the ring passes rows of places.

All of their shape, and what is gathered of it, lies so then, with a row's places on the lanes, as it pads least; what
convolutions read and make of it are copies. Seen on v4, v5e and v5p.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from ...graph import Graph, Value
from ...image_pieces import Shape
from ...images import CONVOLUTION, LANES, batch_on_lanes, images, images_of
from ...kernels import Program
from ...kinds import ALL_GATHER, REDUCE_SCATTER
from .taken_in_pieces import NARROW, Beside


def shapes_in_rows(graph: Graph) -> frozenset[Shape]:
    """The shapes of such images, whole and in parts."""
    lie = images(graph) if REDUCE_SCATTER in graph.kinds else {}
    if not lie:
        return frozenset()
    found = set[Shape]()
    for op in graph.ops:
        image = lie.get(graph.shape(op.operands[0])) if op.kind == REDUCE_SCATTER else None
        if image is not None:
            whole, part = graph.values[op.operands[0]], graph.values[op.results[0]]
            features, batch = part.shape[image.features], part.shape[image.batch]
            is_cut = features < whole.shape[image.features] and features % LANES > 0
            if is_cut and not batch_on_lanes(features, batch, part.bits):
                found.add(part.shape)
    gathers = ((graph.shape(op.operands[0]), graph.shape(op.results[0])) for op in graph.ops if op.kind == ALL_GATHER)
    return frozenset({*found, *(whole for part, whole in gathers if part in found)})


def copied_for_convolutions(program: Program, laid_bytes: Callable[[Value], int]) -> Iterator[Beside]:
    """The copies that convolutions read and make of such images, each while it is computed."""
    graph, rows = program.graph, shapes_in_rows(program.graph)
    for point, kernel in enumerate(program.kernels) if rows else ():
        for op in [graph.ops[number] for number in kernel.ops]:
            for value, _ in images_of(graph, op) if op.kind == CONVOLUTION else ():
                if graph.shape(value) in rows:
                    made = graph.values[value]
                    copy = replace(made, dtype=NARROW) if value in op.operands else made
                    yield Beside(value, (point, point), laid_bytes(copy))
