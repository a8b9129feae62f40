"""What loops, scatters and updates write into is filled for each; what a loop writes over piece by piece is not."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..graph import Graph, Op
from ..lookups import SCATTER, tables_of
from .nature import ALLOCATE, BROADCAST, UPDATE

WRITING = frozenset({SCATTER, UPDATE, "while"})
SHARED = "shared"
"""Says of a fill that several write into such an array, each into one of its own; ``ALLOCATE`` that it were not filled
if the others did not.
"""


def without_shares(graph: Graph) -> Graph:
    """The graph of which nothing is said of what fills share: they may where devices have parts of them."""
    if not any(SHARED in op.attributes for op in graph.of_kind(BROADCAST)):
        return graph
    return replace(graph, ops=tuple([_without_share(op) if op.kind == BROADCAST else op for op in graph.ops]))


def with_own_fills(graph: Graph) -> Graph:
    """The graph in which each loop, scatter and update has an array of its own where it is given one number everywhere.

    These write into what they are given. All else computes such an array in passing.
    """
    if WRITING.isdisjoint(graph.kinds):
        return graph
    filled = {op.results[0]: op for op in graph.ops if _is_filled(graph, op)}
    reads = graph.reads() if filled else {}
    if not any(reads[value] > 1 for value in filled if value in reads):
        return graph
    values, ops, shared = list(graph.values), list[Op](), _written_by_several(graph)
    for op in graph.ops:
        if written := _written_into(op):
            operands = list(op.operands)
            for position, value in enumerate(written):
                if value in filled and reads[value] > 1:
                    operands[position] = len(values)
                    ops.append(_own(filled[value], len(values), is_shared=value in shared))
                    values.append(graph.values[value])
            op = replace(op, operands=tuple(operands))
        ops.append(op)
    return replace(graph, values=tuple(values), ops=tuple(ops))


def with_allocations(graph: Graph) -> Graph:
    """The graph in which arrays filled with one number, for a loop to begin with, are not filled.

    So JAX makes what a scan stacks up; the compiler sees that no turn reads it and that all turns together write all.
    And so gradients are added up: on the first turn the compiler adds to the number itself. It does not where another
    loop or a scatter begins with such an array too, as layers of recurrent nets do (v4, v5e, v6e).
    """
    if not any(op.kind == "while" for op in graph.nesting):
        return graph
    filled = {op.results[0] for op in graph.ops if _is_filled(graph, op)} - set(graph.results)
    for op in graph.ops if filled else ():
        filled.difference_update(_taken(op) if op.kind == "while" and op.bodies else op.operands)
    if not filled:
        return graph
    ops = (_allocated(op) if op.results and op.results[0] in filled else op for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def _written_by_several(graph: Graph) -> frozenset[int]:
    """The values that more than one operation writes into, a loop that does so twice counted once."""
    writers = Counter(value for op in graph.ops for value in set(_written_into(op)))
    return frozenset(value for value, count in writers.items() if count > 1)


def _own(fill: Op, value: int, *, is_shared: bool) -> Op:
    attributes = {**fill.attributes, SHARED: True} if is_shared else fill.attributes
    return replace(fill, results=(value,), attributes=attributes)


def _written_into(op: Op) -> tuple[int, ...]:
    """The first operands of an operation that writes into these: of a loop all, of a scatter what it adds to, of an
    update what it is put into.
    """
    if op.kind == SCATTER:
        return tables_of(op)
    if op.kind == UPDATE:
        return op.operands[:1]
    return op.operands if op.kind == "while" and op.bodies else ()


def _is_filled(graph: Graph, op: Op) -> bool:
    return op.kind == BROADCAST and not graph.values[op.operands[0]].shape


def if_alone(graph: Graph) -> Graph:
    """The graph where nothing is filled that were not but for others: of a step that is not laid out, whose devices may
    have parts of these that are not alike.
    """
    if not any(op.attributes.get(SHARED) == ALLOCATE for op in graph.of_kind(BROADCAST)):
        return graph
    ops = [replace(op, kind=ALLOCATE) if op.attributes.get(SHARED) == ALLOCATE else op for op in graph.ops]
    return replace(graph, ops=tuple(ops))


def _without_share(op: Op) -> Op:
    return replace(op, attributes={name: each for name, each in op.attributes.items() if name != SHARED})


def _allocated(op: Op) -> Op:
    """What is there in the place of a fill: nothing is filled, unless others have such an array."""
    if SHARED in op.attributes:
        return replace(op, attributes={**op.attributes, SHARED: ALLOCATE})
    return replace(op, kind=ALLOCATE, operands=(), attributes={})


def _taken(loop: Op) -> Iterator[int]:
    """The operands of a loop of which it needs what is in them."""
    body = loop.bodies[0]
    readers = defaultdict[int, list[Op]](list)
    for op in body.ops:
        for value in set(op.operands):
            readers[value].append(op)
    for position, operand in enumerate(loop.operands):
        argument = body.arguments[position]
        is_carried = position < len(body.results) and argument not in body.results
        if not (is_carried and _is_begun(body, argument, readers[argument], position, loop)):
            yield operand


def _is_begun(body: Graph, argument: int, readers: Sequence[Op], position: int, loop: Op) -> bool:
    """Whether a loop makes by itself what a carry begins with: it writes it over, or what reads it has the number in
    its place on the first turn (a ``select``; v3, v4, v5e and v6e). What rows are scattered into, and what is only
    updated in parts, it takes as it is.
    """
    if any(op.kind == SCATTER and argument in tables_of(op) for op in readers):
        return False
    updates = [op for op in readers if op.kind == UPDATE and op.operands[0] == argument]
    if len(updates) < len(readers):
        return loop.trips > 1 and not loop.attributes.get("trips_unknown", False)
    return len(updates) == 1 and _is_written_over(body, updates[0], position, loop.trips)


def _is_written_over(body: Graph, update: Op, position: int, trips: int) -> bool:
    """Whether a loop only writes what it carries at a position, a piece each turn and all pieces in all turns.

    ``update`` is all that reads it.
    """
    argument = body.arguments[position]
    if argument in update.operands[1:] or body.results[position] != update.results[0]:
        return False
    whole, piece = (body.values[value].shape for value in update.operands[:2])
    cut = [(size, part) for size, part in zip(whole, piece, strict=True) if size != part]
    return cut == [(trips, 1)] and not _goes_back(body, update)


def _goes_back(body: Graph, update: Op) -> bool:
    """Whether a loop writes the last piece first, as that of a gradient does: the compiler then does not see that all
    pieces are written.
    """
    makers = {op.results[0]: op for op in body.ops if op.results}
    waiting, seen = [*update.operands[2:]], set[int]()
    while waiting:
        value = waiting.pop()
        op = makers.get(value)
        if op is None or value in seen:
            continue
        if op.kind == "subtract":
            return True
        seen.add(value)
        waiting.extend(op.operands)
    return False
