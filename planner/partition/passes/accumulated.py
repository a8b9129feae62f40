"""What each turn of a loop adds up over the devices, and over the turns, is added up over the devices once, behind it.

The weights' gradients of a loop over time or over microbatches: ``carry + all_reduce(part)`` becomes ``carry + part``,
also where the part is converted between: what is added up behind the loop has the carry's dtype
(``WhileLoopAllReduceCodeMotion``). What rows are scattered into, as the gradient of an embedding, is added up in every
turn (v5e and v5p).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ...graph import Graph, Op, Value
from ...kinds import ALL_REDUCE
from ...lookups import SCATTER

_MOVES = frozenset({"transpose", "reshape", "convert"})
_EMPTY = frozenset({"broadcast_in_dim", "constant", "allocate"})


class _Sum(NamedTuple):
    """An all-reduce in a loop's body, and the place in the carry of what it goes into."""

    reduce: Op
    carried: int


def sum_behind_loops(graph: Graph) -> Graph:
    """The graph with such all-reduces behind their loops, those inside loops inside first."""
    if not graph.nesting:
        return graph
    values = list(graph.values)
    makers = {value: op for op in graph.ops for value in op.results}
    ops: list[Op] = []
    for op in graph.ops:
        inner = replace(op, bodies=tuple(map(sum_behind_loops, op.bodies))) if op.bodies else op
        sums = list(_sums(inner.bodies[0], len(op.results))) if op.kind == "while" else []
        if not sums:
            ops.append(inner)
            continue
        results = list(op.results)
        behind: list[Op] = []
        for reduce, carried in sums:
            behind += _behind(reduce, op, carried, results, values, makers)
        body = _without(inner.bodies[0], [each.reduce for each in sums])
        ops += [replace(inner, results=tuple(results), bodies=(body,)), *behind]
    return replace(graph, values=tuple(values), ops=tuple(ops))


def added_up(body: Graph, carries: int) -> Iterator[tuple[Op, int]]:
    """What makes what goes into nothing but a sum over a body's turns, which nothing else reads; its carry's place.

    The body's first ``carries`` arguments and results are the loop's carry.
    """
    readers = body.reads()
    readers.update(body.results)
    makers = {op.results[0]: op for op in body.ops if len(op.results) == 1}
    for carried, (argument, result) in enumerate(zip(body.arguments, body.results[:carries], strict=False)):
        joint = makers.get(result)
        if joint is None or joint.kind != "add" or argument not in joint.operands:
            continue
        if readers[argument] != 1 or readers[result] != 1:
            continue
        (added,) = (value for value in joint.operands if value != argument)
        while added in makers and makers[added].kind in _MOVES and readers[added] == 1:
            (added,) = makers[added].operands
        if added in makers and readers[added] == 1 and not _is_scattered(makers[added], makers):
            yield makers[added], carried


def _is_scattered(made: Op, makers: Mapping[int, Op]) -> bool:
    """Whether rows are scattered, and added up over the devices or not yet."""
    source = makers.get(made.operands[0]) if made.kind == ALL_REDUCE else made
    return source is not None and source.kind == SCATTER


def _sums(body: Graph, carries: int) -> Iterator[_Sum]:
    for made, carried in added_up(body, carries):
        if made.kind == ALL_REDUCE and made.attributes.get("reducer") == "add":
            yield _Sum(made, carried)


def _behind(
    reduce: Op, loop: Op, carried: int, results: list[int], values: list[Value], makers: dict[int, Op]
) -> Iterator[Op]:
    """The all-reduce of what a loop has added up, and what it began with added to that, if it did not with nothing."""
    made, begun = results[carried], loop.operands[carried]
    values.append(values[made])
    results[carried] = len(values) - 1
    whole = made
    begins = makers.get(begun)
    if begins is None or begins.kind not in _EMPTY:
        values.append(values[made])
        whole = len(values) - 1
    yield replace(reduce, operands=(results[carried],), results=(whole,))
    if whole != made:
        yield Op(kind="add", operands=(begun, whole), results=(made,), origin=reduce.origin)


def _without(body: Graph, gone: Sequence[Op]) -> Graph:
    """The body whose operations read what all-reduces read in place of what they make."""
    instead = {op.results[0]: op.operands[0] for op in gone}
    ops = (op for op in body.ops if not any(op is each for each in gone))
    ops = (replace(op, operands=tuple(instead.get(value, value) for value in op.operands)) for op in ops)
    return replace(body, ops=tuple(ops))
