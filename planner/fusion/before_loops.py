"""What every turn of a loop rounds alike is rounded before the loop, and what it stacks up to be rounded is rounded.

A scan's weights, or all of its layers', are converted once to what the matrix unit reads, and what one scan saves for
the products of another lies in bfloat16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace

from ..graph import Graph, Op, Value
from .narrow import NARROW, WIDE, is_rounded, rounded_arguments
from .nature import ALLOCATE, BROADCAST, UPDATE, VIEWS
from .uses import Uses, read_uses

Rounding = Mapping[int, frozenset[int]]


def with_roundings_before_loops(graph: Graph) -> Graph:
    """The graph whose loops are given and leave behind bfloat16 where all that reads it rounds to that.

    The conversions have new numbers; so have those of what is stacked up, in the loops' bodies.
    """
    inside = _rounding(graph)
    if not any(inside.values()):
        return graph
    uses = read_uses(graph)
    stacks = _stacks(graph, uses, inside)
    values, ops = list(graph.values), list[Op]()
    rounded: dict[int, int] = {}
    for number, op in enumerate(graph.ops):
        for position in stacks.get(number, ()):
            for value in (op.operands[position], op.results[position]):
                values[value] = rounding = replace(values[value], dtype=NARROW)
                rounded[value] = value
            op = _stacking(op, position, rounding)
        given = sorted(p for p in inside.get(number, ()) if _is_given(graph, uses, op.operands[p], inside, rounded))
        for position in given:
            value = op.operands[position]
            if value not in rounded:
                rounded[value] = len(values)
                values.append(replace(values[value], dtype=NARROW))
                origin = _first_reader(op.bodies[0], op.bodies[0].arguments[position]).origin
                ops.append(Op(kind="convert", operands=(value,), results=(rounded[value],), origin=origin))
        ops.append(_reading(op, given, rounded) if given else op)
    return replace(graph, values=tuple(values), ops=tuple(ops))


def narrow_stacks(graph: Graph) -> Mapping[int, tuple[int, ...]]:
    """By loop the positions of what it only stacks up, a piece a turn, for others to round."""
    inside = _rounding(graph)
    return _stacks(graph, read_uses(graph), inside) if any(inside.values()) else {}


def _rounding(graph: Graph) -> dict[int, frozenset[int]]:
    """By loop the positions of what it rounds."""
    return {
        number: rounded_arguments(op.bodies[0])
        for number, op in enumerate(graph.ops)
        if op.bodies and op.turns and not op.bodies[0].goes_round
    }


def _stacks(graph: Graph, uses: Uses, inside: Rounding) -> dict[int, tuple[int, ...]]:
    return {number: tuple(_stacked(graph, uses, graph.ops[number], inside)) for number in inside}


def _is_given(graph: Graph, uses: Uses, value: int, inside: Rounding, rounded: Mapping[int, int]) -> bool:
    """Whether a loop's operand is to be converted, or has been: it is not narrow by itself, as what only such read."""
    if value in rounded:
        return True
    source = value
    while source in uses.makers and graph.ops[uses.makers[source]].kind in VIEWS:
        source = graph.ops[uses.makers[source]].operands[0]
    made = source in uses.makers and is_rounded(graph, uses, value, frozenset(), frozenset(), inside)
    return graph.values[value].dtype == WIDE and len(graph.shape(value)) > 1 and not made


def _first_reader(graph: Graph, value: int) -> Op:
    return next(op for op in graph.ops if value in op.operands)


def _reading(loop: Op, positions: list[int], rounded: Mapping[int, int]) -> Op:
    body = loop.bodies[0]
    operands, values = list(loop.operands), list(body.values)
    for position in positions:
        operands[position] = rounded[operands[position]]
        argument = body.arguments[position]
        values[argument] = replace(values[argument], dtype=NARROW)
    given = _as_given(replace(body, values=tuple(values)), {body.arguments[position] for position in positions})
    return replace(loop, operands=tuple(operands), bodies=(given, *loop.bodies[1:]))


def _as_given(body: Graph, rounded: Set[int]) -> Graph:
    """A body that reads what is given ``rounded`` as it is, where it converted that."""
    same: dict[int, int] = {}
    ops = []
    for op in body.ops:
        if op.kind == "convert" and op.operands[0] in rounded and body.values[op.results[0]].dtype == NARROW:
            same[op.results[0]] = op.operands[0]
        else:
            ops.append(
                op if same.keys().isdisjoint(op.operands) else op.moved(tuple(same.get(v, v) for v in op.operands))
            )
    if not same:
        return body
    return replace(body, ops=tuple(ops), results=tuple(same.get(value, value) for value in body.results))


def _stacked(graph: Graph, uses: Uses, loop: Op, inside: Rounding) -> Iterator[int]:
    """The positions of what a loop only stacks up, a piece a turn, for others to round."""
    body = loop.bodies[0]
    within = read_uses(body)
    for position, (value, argument) in enumerate(zip(loop.results, body.arguments, strict=False)):
        first = loop.operands[position]
        fills = uses.makers.get(first)
        update = within.makers.get(body.results[position])
        if (
            graph.values[value].dtype == WIDE
            and fills is not None
            and graph.ops[fills].kind in (ALLOCATE, BROADCAST)
            and len(uses.readers[first]) == 1
            and update is not None
            and body.ops[update].kind == UPDATE
            and within.readers[argument] == [(update, 0)]
            and not within.readers[body.results[position]]
            and is_rounded(graph, uses, value, frozenset(), frozenset(), inside)
        ):
            yield position


def _stacking(loop: Op, position: int, rounding: Value) -> Op:
    """A loop that rounds what it stacks up at a position."""
    body = loop.bodies[0]
    values, ops, made = list(body.values), list[Op](), body.results[position]
    for value in (body.arguments[position], made):
        values[value] = replace(values[value], dtype=rounding.dtype)
    for op in body.ops:
        if made in op.results:
            piece = op.operands[1]
            values.append(replace(values[piece], dtype=rounding.dtype))
            ops.append(Op(kind="convert", operands=(piece,), results=(len(values) - 1,), origin=op.origin))
            op = op.moved((op.operands[0], len(values) - 1, *op.operands[2:]))
        ops.append(op)
    return replace(loop, bodies=(replace(body, values=tuple(values), ops=tuple(ops)), *loop.bodies[1:]))
