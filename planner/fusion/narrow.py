"""Numbers that only the matrix unit reads are stored as it reads them: in bfloat16."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from ..graph import Graph, Op, Value
from ..kinds import TURNED_COPY
from .nature import CONVERT, PRODUCTS, VIEWS, is_of_vector, joins_lanes
from .parts import NO_PARTS, Parts, is_computed_anew, is_of_one
from .uses import Uses, read_uses

_MOVES = {"slice", "pad", "concatenate", "dynamic_slice", "reverse", "copy", TURNED_COPY}
KEEPING = VIEWS | {"select", "maximum", "minimum"} | _MOVES
WIDE, NARROW = "f32", "bf16"
_ROUNDING = KEEPING | PRODUCTS | {CONVERT}


def narrow(graph: Graph, uses: Uses, masks: frozenset[int], shared: Parts = NO_PARTS) -> Graph:
    """The graph with the values in bfloat16 whose every reader rounds them to it: products at the default precision,
    and what merely picks and moves numbers for those. A batch of products that join two dims of an operand into one
    write them apart again, and no narrower. What a loop holds still for its turns it is given narrow. What computes
    anew what is written for others (``shared``) does not read it.
    """
    narrowed = _narrowed(graph, uses, masks, shared)
    if not narrowed:
        return graph
    values = list(graph.values)
    for number in narrowed:
        wide = values[number]
        values[number] = Value(wide.shape, NARROW, wide.sharding)
    ops = tuple([_given_narrow(op, narrowed) if op.kind == "while" and op.bodies else op for op in graph.ops])
    return replace(graph, values=tuple(values), ops=ops)


def _narrowed(graph: Graph, uses: Uses, masks: frozenset[int], shared: Parts = NO_PARTS) -> set[int]:
    narrowed, apart = set[int](), _written_apart(graph)
    inside = {n: rounded_arguments(op.bodies[0]) for n, op in enumerate(graph.ops) if op.bodies and op.turns}
    values, ops = graph.values, graph.ops
    readers = _read(graph, uses, shared) if shared else uses.readers
    for op in reversed(ops):
        if op.kind == "while":
            continue
        for value in op.results:
            if values[value].dtype != WIDE or not readers[value] or value in apart:
                continue
            first = readers[value][0][0]
            may = ops[first].kind in _ROUNDING or first in masks or first in inside
            if may and is_rounded(graph, uses, value, narrowed, masks, inside, readers[value]):
                narrowed.add(value)
    return narrowed


def _read(graph: Graph, uses: Uses, shared: Parts) -> Sequence[Sequence[tuple[int, int]]]:
    """What reads each value where it lies: not what computes anew what is written for others."""
    readers = list(uses.readers)
    for maker in (number for number in shared if is_of_one(graph, uses, graph.ops[number])):
        for value in graph.ops[maker].results:
            near = [pair for pair in readers[value] if not is_computed_anew(graph, pair[0], maker, shared)]
            readers[value] = near or readers[value]
    return readers


def rounded_arguments(body: Graph) -> frozenset[int]:
    """The positions of what a loop reads, but does not carry on, and every reader rounds."""
    uses = read_uses(body)
    narrowed = _narrowed(body, uses, frozenset())
    still = range(len(body.results), len(body.arguments))
    wide = (position for position in still if body.values[body.arguments[position]].dtype == WIDE)
    return frozenset(p for p in wide if is_rounded(body, uses, body.arguments[p], narrowed, frozenset(), {}))


def _given_narrow(loop: Op, narrowed: set[int]) -> Op:
    body = loop.bodies[0]
    given = {body.arguments[p] for p, v in enumerate(loop.operands) if v in narrowed and p < len(body.arguments)}
    if not given:
        return loop
    values = (replace(v, dtype=NARROW) if n in given else v for n, v in enumerate(body.values))
    return replace(loop, bodies=(replace(body, values=tuple(values)), *loop.bodies[1:]))


def _written_apart(graph: Graph) -> set[int]:
    """What batches of products make that join two dims, under any shape."""
    found = set[int]()
    for op in graph.ops:
        batched = op.kind == "dot_general" and op.attributes.get("lhs_batching_dimensions")
        joins = batched and any(joins_lanes(graph, op, side) for side in (0, 1))
        if joins or (op.kind in VIEWS and not found.isdisjoint(op.operands)):
            found.update(op.results)
    return found


def is_rounded(
    graph: Graph,
    uses: Uses,
    value: int,
    narrowed: Set[int],
    masks: frozenset[int],
    inside: Mapping[int, frozenset[int]],
    readers: Sequence[tuple[int, int]] | None = None,
) -> bool:
    """Whether all that reads a value rounds it: products, what keeps numbers for those that are ``narrowed``, and loops
    at the positions that ``inside`` has. ``readers`` are those who read it where it lies, if not all do.
    """
    if value in uses.results or not uses.readers[value]:
        return False
    for reader, position in uses.readers[value] if readers is None else readers:
        if reader in masks:
            continue
        if not (position in inside[reader] if reader in inside else _rounds(graph, graph.ops[reader], narrowed)):
            return False
    return True


def _rounds(graph: Graph, reader: Op, narrowed: Set[int]) -> bool:
    if reader.kind in KEEPING:
        (made,) = reader.results
        return made in narrowed or graph.values[made].dtype == NARROW
    if reader.kind in PRODUCTS:
        return is_default_precision(reader) and not is_of_vector(graph, reader)
    return reader.kind == CONVERT and graph.values[reader.results[0]].dtype == NARROW


def is_default_precision(op: Op) -> bool:
    """Whether a product rounds its operands to bfloat16: nothing more precise is asked of it."""
    said = op.attributes.get("precision_config") or op.attributes.get("precision") or ()
    words = (said,) if isinstance(said, str) else tuple(said)
    return all(str(word).rsplit(".", 1)[-1].upper() in ("DEFAULT", "") for word in words)
