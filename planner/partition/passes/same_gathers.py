"""Equal gathers of one value become one where the value would not have to be kept for long.

XLA gathers anew for every operation that reads the whole value. A later pass lets readers share a gather, unless the
first's last reader is so many operations before the second that memory matters more (``DISTANCE``). Other collectives
of one value are always shared, those of shared gathers too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...graph import Graph, Op
from ...kinds import ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE
from ..reshard import SLICE

DISTANCE = 100
LONGEST_SCAN, SCAN_STEPS = 128, 8
"""How long sums of all that comes before are that XLA leaves as they are, and how many operations more it makes of a
longer one: sums in parts of that length, the parts' own, and both put together again.
"""
DOT, RESHAPE, TRANSPOSE, REVERSE, CONVERT = "dot_general", "reshape", "transpose", "reverse", "convert"
MOVES = frozenset({TRANSPOSE, REVERSE, CONVERT})
"""What may stand between a value and a gather of it: XLA gathers the value, and does these before or after."""
WITHOUT_UNITS = frozenset({DOT, "broadcast_in_dim"})
"""What XLA computes without dims of size one."""

SHARED = frozenset({ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE, SLICE})


def share_gathers(graph: Graph) -> Graph:
    """The graph with gathers shared, in loops too."""
    graph = _with_bodies(graph)
    if sum(op.kind in SHARED for op in graph.ops) < 2:
        return graph
    heights: dict[int, int] = {}
    lowest: dict[int, int] = {}
    ranks: dict[int, int] = {}
    earlier: dict[tuple[object, ...], Op] = {}
    renamed: dict[int, int] = {}
    moves: dict[int, Op] = {}
    ordered: dict[int, tuple[int, ...]] = {}
    kept: list[Op] = []
    is_shared = False
    for op in graph.ops:
        op = _renamed(op, renamed) if renamed else op
        if op.kind in MOVES:
            moves[op.results[0]] = op
        if op.kind in SHARED and {"axes", "dimensions"} <= op.attributes.keys():
            turn = _turn(op, moves)
            key, dims = _key(op, turn, graph, moves)
            first = earlier.get(key)
            if first and not heights:
                (heights, lowest), ranks = _heights(graph), _ranks(graph)  # most graphs have no two alike
            met, last = (first, op) if first and ranks[first.results[0]] < ranks[op.results[0]] else (op, first)
            order = tuple([ordered[first.results[0]].index(dim) for dim in dims]) if first else ()
            lies_alike = order == tuple(sorted(order))
            if first and last and (lies_alike or turn is None) and _near(met, last, heights, lowest):
                was, now, is_shared = op.results[0], first.results[0], True
                lowest[now] = min(lowest.get(now, 0), lowest.get(was, 0))
                if turn is not None:
                    kept.append(turn.moved((now,), (was,)))
                elif not lies_alike:
                    said = {"permutation": order}
                    kept.append(Op(kind=TRANSPOSE, operands=(now,), results=(was,), attributes=said, origin=op.origin))
                else:
                    renamed[was] = now
                continue
            if turn is None:
                earlier[key] = last or op
                ordered[op.results[0]] = dims
        kept.append(op)
    if not is_shared:
        return graph
    results = tuple(renamed.get(value, value) for value in graph.results)
    return replace(graph, ops=tuple(kept), results=results)


def _turn(op: Op, moves: Mapping[int, Op]) -> Op | None:
    """What reverses the value that is gathered, as a convolution's gradient reads it."""
    found = moves.get(op.operands[0]) if op.kind == ALL_GATHER else None
    return found if found is not None and found.kind == REVERSE else None


def _key(op: Op, turn: Op | None, graph: Graph, moves: Mapping[int, Op]) -> tuple[tuple[object, ...], tuple[int, ...]]:
    """What makes two gathers equal, and which dim of what is gathered each dim of the result is.

    XLA converts before it transposes, and transposes last of all: both are the gather of what lies as it did. One of a
    reversed value is the value's.
    """
    shape, attributes = graph.shape(op.results[0]), op.attributes
    value, changed = (turn or op).operands[0], attributes["dimensions"]
    dims, dtypes = tuple(range(len(shape))), list[str]()
    if op.kind == ALL_GATHER:
        while value in moves and moves[value].kind != REVERSE:
            move = moves[value]
            if move.kind == TRANSPOSE:
                order = move.attributes["permutation"]
                dims = tuple([order[dim] for dim in dims])
            else:
                dtypes.append(graph.values[value].dtype)
            value = move.operands[0]
        changed = tuple([dims[dim] for dim in changed])
    sizes = tuple([shape[dims.index(dim)] for dim in range(len(shape))])
    to = (attributes["axes"], changed, attributes.get("shift"), attributes.get("target"))
    return (op.kind, value, *op.operands[1:], *dtypes, to, sizes), dims


def _with_bodies(graph: Graph) -> Graph:
    if not graph.nesting:
        return graph
    ops = (replace(op, bodies=tuple(map(share_gathers, op.bodies))) if op.bodies else op for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def _near(first: Op, second: Op, heights: dict[int, int], lowest: dict[int, int]) -> bool:
    if first.kind != ALL_GATHER:
        return True
    return lowest.get(first.results[0], 0) <= heights[second.results[0]] + DISTANCE


def _ranks(graph: Graph) -> dict[int, int]:
    """The place of each value in post-order from the results, in which XLA meets what makes them."""
    makers = {value: op for op in graph.ops for value in op.results}
    ranks: dict[int, int] = {}
    waiting = [(value, False) for value in reversed(graph.results)]
    while waiting:
        value, is_left = waiting.pop()
        if value in ranks or value not in makers:
            continue
        if is_left:
            ranks.update((made, len(ranks)) for made in makers[value].results)
        else:
            waiting.append((value, True))
            waiting += [(operand, False) for operand in reversed(makers[value].operands)]
    return ranks


def _renamed(op: Op, renamed: dict[int, int]) -> Op:
    if renamed.keys().isdisjoint(op.operands):
        return op
    return op.moved(tuple([renamed.get(value, value) for value in op.operands]))


def _heights(graph: Graph) -> tuple[dict[int, int], dict[int, int]]:
    """How many operations follow each value on the longest way to a result, and that of its lowest reader.

    What takes one of several results of an operation out of a tuple is one too, and so is what takes dims of size one
    from what a product or a broadcast reads, or gives them to what a product makes: these are computed without.
    """
    heights: dict[int, int] = {}
    lowest: dict[int, int] = dict.fromkeys(graph.results, 0)
    height_of, lowest_of = heights.get, lowest.get
    makers, same = _makers_with_units(graph)
    for value in graph.results:
        heights[value] = 2 if makers.get(value) == DOT else 1
    for op in reversed(graph.ops):
        made, kind = op.results, _kind(op, graph) if op.operands and op.operands[0] in makers else op.kind
        if made[0] in same:
            source = op.operands[0]
            heights[source] = max(height_of(source, 0), height_of(made[0], 0))
            lowest[source] = min(lowest_of(source, height_of(made[0], 0)), lowest_of(made[0], 0))
            continue
        height = height_of(made[0], 0) if len(made) == 1 else 1 + max([height_of(v, 0) for v in made], default=0)
        if kind == "reduce_window" and max(op.attributes.get("window_dimensions", ()), default=0) > LONGEST_SCAN:
            height += SCAN_STEPS
        for value in op.operands:
            near = height + (value in makers and _is_reshaped(makers[value], kind))
            if height_of(value, 0) <= near:
                heights[value] = near + 1
            if lowest_of(value, near) >= near:
                lowest[value] = near
    return heights, lowest


def _makers_with_units(graph: Graph) -> tuple[dict[int, str], set[int]]:
    """What kind of operation makes each value that has dims of size one beside others, ``""`` for arguments; and those
    that are only what a product makes, with other dims of size one.
    """
    units = {number for number, value in enumerate(graph.values) if 1 in value.shape and value.num_elements > 1}
    makers = dict.fromkeys(units, "")
    products, same = set[int](), set[int]()
    for op in graph.ops:
        made, kind = op.results[0], op.kind
        if kind == DOT:
            products.add(made)
        elif kind in (RESHAPE, TRANSPOSE) and made in units:
            kind = _kind(op, graph)
            if (
                op.operands[0] in products
                and kind == RESHAPE
                and _proper(graph.shape(made)) == _proper(graph.shape(op.operands[0]))
            ):
                products.add(made)
                same.add(made)
                kind = DOT
        makers.update((value, kind) for value in op.results if value in units)
    return makers, same


def _proper(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple([size for size in shape if size != 1])


def _kind(op: Op, graph: Graph) -> str:
    """An operation's kind; moving dims of size one alone is a reshape."""
    if op.kind != TRANSPOSE:
        return op.kind
    shape = graph.shape(op.operands[0])
    kept = [dim for dim in op.attributes["permutation"] if shape[dim] != 1]
    return RESHAPE if kept == sorted(kept) else op.kind


def _is_reshaped(maker: str, reader: str) -> bool:
    """Whether dims of size one come or go between what makes a value and what reads it; a reshape takes that over."""
    return RESHAPE not in (maker, reader) and (maker == DOT) != (reader in WITHOUT_UNITS)
