"""Equal gathers of one value become one where the value would not have to be kept for long.

XLA gathers anew for every operation that reads the whole value. A later pass lets readers share a gather, unless the
first's last reader is so many operations before the second that memory matters more (``DISTANCE``). Other collectives
of one value are always shared, those of shared gathers too.
"""

from __future__ import annotations

from dataclasses import replace

from ...graph import Graph, Op
from ...kinds import ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE
from ..reshard import SLICE

DISTANCE = 100
LONGEST_SCAN, SCAN_STEPS = 128, 8
"""How long sums of all that comes before are that XLA leaves as they are, and how many operations more it makes of a
longer one: sums in parts of that length, the parts' own, and both put together again.
"""
SHARED = frozenset({ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE, SLICE})


def share_gathers(graph: Graph) -> Graph:
    """The graph with gathers shared, in loops too."""
    graph = _with_bodies(graph)
    if sum(op.kind in SHARED for op in graph.ops) < 2:
        return graph
    heights: dict[int, int] = {}
    lowest: dict[int, int] = {}
    earlier: dict[tuple[object, ...], Op] = {}
    renamed: dict[int, int] = {}
    turned: dict[int, Op] = {}
    kept: list[Op] = []
    is_shared = False
    for op in graph.ops:
        op = _renamed(op, renamed) if renamed else op
        if op.kind == "reverse":
            turned[op.results[0]] = op
        if op.kind in SHARED and {"axes", "dimensions"} <= op.attributes.keys():
            turn = turned.get(op.operands[0]) if op.kind == ALL_GATHER else None
            key = (_key(op, turn), graph.shape(op.results[0]))
            first = earlier.get(key)
            if first is not None and not heights:
                heights, lowest = _heights(graph)  # most graphs have no two alike
            if first is not None and _near(op, first, heights, lowest):
                was, now, is_shared = op.results[0], first.results[0], True
                lowest[now] = min(lowest.get(now, 0), lowest.get(was, 0))
                if turn is not None:
                    kept.append(turn.moved((now,), (was,)))
                else:
                    renamed[was] = now
                continue
            if turn is None:
                earlier[key] = op
        kept.append(op)
    if not is_shared:
        return graph
    results = tuple(renamed.get(value, value) for value in graph.results)
    return replace(graph, ops=tuple(kept), results=results)


def _key(op: Op, turn: Op | None) -> tuple[object, ...]:
    """What makes two gathers equal; one of a reversed value, as a convolution's gradient reads it, is the value's."""
    operands = turn.operands if turn is not None else op.operands
    attributes = op.attributes
    to = (attributes["axes"], attributes["dimensions"], attributes.get("shift"), attributes.get("target"))
    return (op.kind, operands, to)


def _with_bodies(graph: Graph) -> Graph:
    if not graph.nesting:
        return graph
    ops = (replace(op, bodies=tuple(map(share_gathers, op.bodies))) if op.bodies else op for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def _near(op: Op, first: Op, heights: dict[int, int], lowest: dict[int, int]) -> bool:
    if op.kind != ALL_GATHER:
        return True
    return lowest.get(first.results[0], 0) <= heights[op.results[0]] + DISTANCE


def _renamed(op: Op, renamed: dict[int, int]) -> Op:
    if renamed.keys().isdisjoint(op.operands):
        return op
    return op.moved(tuple([renamed.get(value, value) for value in op.operands]))


def _heights(graph: Graph) -> tuple[dict[int, int], dict[int, int]]:
    """How many operations follow each value on the longest way to a result, and that of its lowest reader.

    What takes one of several results of an operation out of a tuple is one too.
    """
    heights: dict[int, int] = dict.fromkeys(graph.results, 1)
    lowest: dict[int, int] = dict.fromkeys(graph.results, 0)
    height_of, lowest_of = heights.get, lowest.get
    for op in reversed(graph.ops):
        made = op.results
        height = height_of(made[0], 0) if len(made) == 1 else 1 + max([height_of(v, 0) for v in made], default=0)
        if op.kind == "reduce_window" and max(op.attributes.get("window_dimensions", ()), default=0) > LONGEST_SCAN:
            height += SCAN_STEPS
        for value in op.operands:
            if height_of(value, 0) <= height:
                heights[value] = height + 1
            if lowest_of(value, height) >= height:
                lowest[value] = height
    return heights, lowest
