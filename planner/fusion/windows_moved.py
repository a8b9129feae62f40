"""Windows of an image beside each other, as shifted-window attention has them, and what is put together of them again.

A reshape parts rows and columns, a transpose moves the parts, another reshape joins windows with windows and places
with places. No layout has both, and the compiler fuses nothing to it: what is moved is written, copied, and read. Of
features on the lanes, which stay there (compiled for v3, v4, v5e, v5p and v6e); smaller ones are pictures, whose copies
``compute`` counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from operator import is_

from ..graph import Graph, Op
from ..kinds import TILE_ROWS, TURNED_COPY
from .nature import LANES

RESHAPE, TRANSPOSE = "reshape", "transpose"
FEWEST_DIMS = 4
"""What windows along one dim have, their features among them."""
FEW_ROWS = (2, 4)
Shape = tuple[int, ...]


def with_windows_moved(graph: Graph) -> Graph:
    """The graph with transposes that are copies as such, in its loops too."""
    parting = {op.results[0]: op for op in graph.of_kind(RESHAPE)}
    joining = {op.operands[0]: op for op in graph.of_kind(RESHAPE)}
    found = [op for op in graph.of_kind(TRANSPOSE) if op.operands[0] in parting and op.results[0] in joining]
    found = [op for op in found if _is_moved(graph, op, parting[op.operands[0]], joining[op.results[0]])]
    moved = {op.results[0]: _few_rows(graph, op) for op in found}
    if not moved and not graph.nesting:
        return graph
    ops = tuple([_as_moved(op, moved) for op in graph.ops])
    return graph if all(map(is_, ops, graph.ops)) else replace(graph, ops=ops)


def _as_moved(op: Op, moved: Mapping[int, int]) -> Op:
    if op.bodies:
        bodies = tuple(map(with_windows_moved, op.bodies))
        return op if all(map(is_, bodies, op.bodies)) else replace(op, bodies=bodies)
    if op.kind != TRANSPOSE or op.results[0] not in moved:
        return op
    return replace(op, kind=TURNED_COPY, attributes={TILE_ROWS: moved[op.results[0]]} if moved[op.results[0]] else {})


def _is_moved(graph: Graph, op: Op, parting: Op, joining: Op) -> bool:
    parts, order = graph.shape(op.operands[0]), tuple(op.attributes["permutation"])
    if len(parts) < FEWEST_DIMS:
        return False
    stays = order[-1] == len(order) - 1 and LANES <= parts[-1] == max(parts)
    if not stays:
        return False
    parted = _beside(graph.shape(parting.operands[0]), parts)
    joined = _beside(graph.shape(joining.results[0]), tuple(parts[dim] for dim in order))
    pairs = {*parted, *((order[one], order[other]) for one, other in joined)}
    return not _lies(pairs)


def _few_rows(graph: Graph, op: Op) -> int:
    """The rows of a tile of what is copied if these are few: two or four places beside each other."""
    *_, rows, _ = (size for size in graph.shape(op.results[0]) if size > 1)
    return rows if rows in FEW_ROWS else 0


def _beside(whole: Shape, parts: Shape) -> Iterator[tuple[int, int]]:
    """The dims of the parts, in pairs, that lie one inside of the other where the whole has them as one dim."""
    dims = [dim for dim, size in enumerate(parts) if size > 1]
    for size in (each for each in whole if each > 1):
        here = list[int]()
        while dims and math.prod(parts[dim] for dim in here) < size:
            here.append(dims.pop(0))
        if math.prod(parts[dim] for dim in here) != size:
            return
        yield from pairwise(here)


def _lies(pairs: set[tuple[int, int]]) -> bool:
    """Whether an order of dims has the second of each pair right inside of the first."""
    return len({one for one, _ in pairs}) == len(pairs) == len({other for _, other in pairs})
