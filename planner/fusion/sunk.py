"""What a loop is given broadcast, it broadcasts itself, in passing, where it reads it; so are pads in one that is none.

Of a ring of few devices the compiler writes all turns one after the other: its products pad what they read as others do
(v5e, logits' gradients of all tokens but the last, around four devices).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..graph import Graph, Op
from .nature import AFTER, BROADCAST, CONSTANT, PRODUCTS

PAD = "pad"


def with_broadcasts_in_loops(graph: Graph) -> Graph:
    """The same graph with the broadcasts that loops only read moved into their bodies.

    JAX computes what no turn of a scan changes before the scan: masks and fill values as large as the attention
    scores. The compiler sinks their broadcasts into the loop again, so that only what they spread lies in memory.
    """
    if not graph.nesting:
        return graph
    makers = {op.results[0]: op for op in graph.ops if op.kind in (BROADCAST, PAD)}
    filled = {op.results[0]: op for op in graph.ops if op.kind == CONSTANT}
    read = {value for op in graph.ops for value in op.operands}.union(graph.results)
    values, ops = list(graph.values), []
    for op in graph.ops:
        if op.kind == "while" and op.bodies:
            sources = dict(_sunk(graph, op, makers, filled, read))
            for position in sources:
                if position < len(op.results):
                    values[op.results[position]] = values[sources[position].operands[0]]
            op = _with_sources(graph, op, sources, filled)
        ops.append(op)
    return replace(graph, values=tuple(values), ops=tuple(ops))


def _sunk(
    graph: Graph, loop: Op, makers: Mapping[int, Op], filled: Mapping[int, Op], read: set[int]
) -> Iterator[tuple[int, Op]]:
    """The positions of a loop's operands that are broadcasts no turn changes and nothing reads after it."""
    body = loop.bodies[0]
    for position, (operand, argument) in enumerate(zip(loop.operands, body.arguments, strict=False)):
        made = makers.get(operand)
        carried = position < len(body.results)
        if made is None or graph.values[made.operands[0]].num_elements >= graph.values[operand].num_elements:
            continue
        if made.kind == PAD and (loop.turns or made.operands[1] not in filled or not _is_multiplied(body, argument)):
            continue
        if not carried or (body.results[position] == argument and loop.results[position] not in read):
            yield position, made


def _is_multiplied(body: Graph, argument: int) -> bool:
    """Whether products alone read it."""
    readers = [op.kind in PRODUCTS for op in body.ops if argument in op.operands]
    return bool(readers) and all(readers) and argument not in body.results


def _with_sources(graph: Graph, loop: Op, sources: Mapping[int, Op], filled: Mapping[int, Op]) -> Op:
    """A loop that is given what its broadcasts spread, and waits for what they waited for."""
    if not sources:
        return loop
    waits = {value for op in (loop, *sources.values()) for value in op.attributes.get(AFTER, ())}
    body = loop.bodies[0]
    operands, values = list(loop.operands), list(body.values)
    renamed, made = dict[int, int](), []
    for position, broadcast in sources.items():
        argument = body.arguments[position]
        operands[position] = broadcast.operands[0]
        said = {name: given for name, given in broadcast.attributes.items() if name != AFTER}
        beside = [filled[value] for value in broadcast.operands[1:]]  # what pads are filled with
        made += [replace(op, results=(len(values) + place,)) for place, op in enumerate(beside)]
        given = (argument, *range(len(values), len(values) + len(beside)))
        values += [graph.values[value] for value in broadcast.operands[1:]]
        renamed[argument] = len(values)
        made.append(replace(broadcast, operands=given, results=(len(values),), attributes=said))
        values.append(values[argument])
        values[argument] = graph.values[broadcast.operands[0]]
    rest = (
        op
        if renamed.keys().isdisjoint(op.operands)
        else replace(op, operands=tuple(renamed.get(v, v) for v in op.operands))
        for op in body.ops
    )
    results = (v if position in sources else renamed.get(v, v) for position, v in enumerate(body.results))
    inner = replace(body, values=tuple(values), ops=(*made, *rest), results=tuple(results))
    attributes = {**loop.attributes, AFTER: tuple(sorted(waits))} if waits else loop.attributes
    return replace(loop, operands=tuple(operands), bodies=(inner, *loop.bodies[1:]), attributes=attributes)
