"""The sum of two partial sums is summed over the devices once: ``a + b`` of two all-reduces is one of ``a + b``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...graph import Graph, Op, Value
from ...kinds import ALL_REDUCE

_ADDS = {"add": "add", "maximum": "maximum", "minimum": "minimum"}
_MOVES = frozenset({"transpose", "reshape", "dynamic_slice"})


class _Reduced(NamedTuple):
    """An all-reduce and what only moves its result, by their places among the operations."""

    reduce: Op
    moves: tuple[Op, ...]
    places: tuple[int, ...]


def reassociate(graph: Graph) -> Graph:
    """The graph with all-reduces moved below the operation that joins them, where nothing else reads them.

    What both results go through on their way (a transposition, a device's own slice) they go through after it, once.
    """
    graph = _with_bodies(graph)
    if [op.kind for op in graph.ops].count(ALL_REDUCE) < 2:
        return graph
    readers = graph.reads()
    readers.update(graph.results)
    reduced: dict[int, _Reduced] = {}
    ops: list[Op | None] = []
    values = list(graph.values)
    for op in graph.ops:
        if op.kind in _ADDS and _joins(op, reduced, readers, values):
            left, right = (reduced[value] for value in op.operands)
            for place in (*left.places, *right.places):
                ops[place] = None
            for made in _below(op, left, right, values):
                _note(made, reduced, len(ops), readers)
                ops.append(made)
            continue
        if op.kind == ALL_REDUCE or op.kind in _MOVES:
            _note(op, reduced, len(ops), readers)
        ops.append(op)
    return replace(graph, values=tuple(values), ops=tuple(op for op in ops if op is not None))


def _note(op: Op, reduced: dict[int, _Reduced], place: int, readers: Counter[int]) -> None:
    if op.kind == ALL_REDUCE and len(op.results) == 1:
        reduced[op.results[0]] = _Reduced(op, (), (place,))
    elif op.kind in _MOVES and len(op.operands) == 1 and op.operands[0] in reduced and readers[op.operands[0]] <= 1:
        before = reduced[op.operands[0]]
        reduced[op.results[0]] = _Reduced(before.reduce, (*before.moves, op), (*before.places, place))


def _below(op: Op, left: _Reduced, right: _Reduced, values: list[Value]) -> Iterator[Op]:
    """The operation that joins, the all-reduce of what it makes, and what moves that, to the operation's result."""
    ends = [left.reduce.results[0], *(move.results[0] for move in left.moves)]
    inner = len(values)
    made = [*range(inner + 1, inner + len(ends)), op.results[0]]
    values += [values[ends[0]], *(values[end] for end in ends[:-1])]
    yield replace(op, operands=(left.reduce.operands[0], right.reduce.operands[0]), results=(inner,))
    for after, before, result in zip((left.reduce, *left.moves), (inner, *made), made, strict=False):
        yield replace(after, operands=(before,), results=(result,))


def _with_bodies(graph: Graph) -> Graph:
    if not graph.nesting:
        return graph
    ops = (replace(op, bodies=tuple(map(reassociate, op.bodies))) if op.bodies else op for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def _joins(op: Op, reduced: dict[int, _Reduced], readers: Counter[int], values: Sequence[Value]) -> bool:
    left, right = (reduced.get(value) for value in op.operands)
    if left is None or right is None or left is right:
        return False
    same = left.reduce.attributes["axes"] == right.reduce.attributes["axes"]
    reducers = {each.reduce.attributes.get("reducer") for each in (left, right)}
    alone = all(readers[value] == 1 for value in op.operands)
    return same and alone and reducers == {_ADDS[op.kind]} and _path(left, values) == _path(right, values)


def _path(found: _Reduced, values: Sequence[Value]) -> list[tuple[object, ...]]:
    start = values[found.reduce.operands[0]].shape
    return [(start,), *((move.kind, values[move.results[0]].shape, move.attributes) for move in found.moves)]
