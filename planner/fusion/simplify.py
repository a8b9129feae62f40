"""What the compiler throws away before it fuses: what nothing reads, what is computed twice, what changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..graph import Graph, Op
from ..kinds import COLLECTIVE_PERMUTE
from .allocated import with_allocations, with_own_fills, without_shares
from .nature import (
    AFTER,
    APART,
    BARRIER,
    BEHIND,
    BROADCAST,
    CONSTANT,
    CONVERT,
    IN_PASSING,
    PRODUCTS,
    REDUCE,
    SLICE,
    VIEWS,
)
from .outer import with_multiplications
from .rounded import with_roundings
from .sliced import with_slices_first
from .sunk import with_broadcasts_in_loops

ONCE = IN_PASSING | PRODUCTS | {REDUCE, CONSTANT, "partition_id", "gather", COLLECTIVE_PERMUTE}
COMMUTATIVE = frozenset({"add", "multiply", "maximum", "minimum", "and", "or", "xor"})
UNCHANGED = frozenset({"reshape", "convert", "broadcast_in_dim", "transpose", "copy", "slice"})


def simplify(graph: Graph, *, rounds: bool = True) -> Graph:
    """The same graph with its values' numbers, without the operations that the compiler drops.

    The roundings that it adds for products, where these round what they read (``rounds``: a GPU's do not), and what is
    spread where it only multiplies, have new numbers.
    """
    graph = with_tables_rounded_once(with_multiplications(without_shares(graph)))
    whole = _without_barriers(replace(graph, **merged(graph)))
    living = _living(with_allocations(with_own_fills(with_broadcasts_in_loops(whole))))
    sliced = with_slices_first(living)
    kept = with_roundings(sliced) if rounds else sliced
    return replace(kept, ops=tuple([_inside(op, rounds=rounds) for op in kept.ops])) if kept.nesting else kept


def with_tables_rounded_once(graph: Graph) -> Graph:
    """The graph in which an argument that is turned to be rounded is rounded as it lies, where that is done for others:
    the products of tied embeddings read what rows are looked up in (v4 and v5p).
    """
    given = frozenset(graph.arguments)
    rounded: dict[tuple[int, str], int] = {}
    turned: dict[int, Op] = {}
    ops = []
    for op in graph.ops:
        if op.kind == "transpose" and op.operands[0] in given:
            turned[op.results[0]] = op
        elif op.kind == CONVERT:
            source, dtype = op.operands[0], graph.values[op.results[0]].dtype
            if source in given:
                rounded.setdefault((source, dtype), op.results[0])
            turn = turned.get(source)
            if turn is not None and (turn.operands[0], dtype) in rounded:
                op = replace(turn, operands=(rounded[turn.operands[0], dtype],), results=op.results, origin=op.origin)
        ops.append(op)
    return replace(graph, ops=tuple(ops))


def merged(graph: Graph) -> dict[str, Any]:
    """Each computation once; what changes nothing is what it reads."""
    same: dict[int, int] = {}
    alone: dict[tuple[str, tuple[int, ...]], Op] = {}  # the first of a kind with these operands: most have no other
    known: dict[Hashable, Op] = {}
    also: dict[int, list[str]] = {}
    swapped = set[str]()
    said: dict[int, str] = {}
    ops = []
    for op in graph.ops:
        op = _reading(op, same) if same else op
        op = _reshaping(graph, op) if op.kind == BROADCAST else op
        if op.kind in UNCHANGED and _changes_nothing(graph, op):
            same[op.results[0]] = op.operands[0]
            continue
        first = alone.setdefault((op.kind, _read_by(op)), op) if _is_made_once(op) else op
        if first is not op:
            known.setdefault(_key(graph, first, said), first)
            first = known.setdefault(_key(graph, op, said), op)
        if first is op:
            ops.append(op)
        else:
            same.update(zip(op.results, first.results, strict=True))
            if op.origin.value is not None:
                paths = op.origin.value, *op.origin.also
                also.setdefault(first.results[0], []).extend(paths)
                turned = op.operands != first.operands
                swapped.update(path for path in paths if (path in op.origin.swapped) != turned)
    if also:
        ops = [_named(op, also[op.results[0]], swapped) if op.results and op.results[0] in also else op for op in ops]
    return {"ops": tuple(ops), "results": tuple(same.get(value, value) for value in graph.results)}


def _named(op: Op, also: Sequence[str], swapped: Collection[str]) -> Op:
    """An operation that is called what those that computed the same were called, too; ``swapped`` ones of these read
    its operands in the other order.
    """
    value, *others = (*op.origin.also, *also) if op.origin.value is None else (op.origin.value, *op.origin.also, *also)
    turned = (*op.origin.swapped, *(path for path in also if path in swapped))
    origin = replace(op.origin, value=value, also=tuple(dict.fromkeys(others)), swapped=tuple(dict.fromkeys(turned)))
    return replace(op, origin=origin)


def _reshaping(graph: Graph, op: Op) -> Op:
    """A broadcast that only adds dims of one as what the compiler makes of it: a reshape."""
    before, after = (graph.values[value] for value in (op.operands[0], op.results[0]))
    dims = tuple(op.attributes.get("broadcast_dimensions", ()))
    if before.num_elements != after.num_elements or before.num_elements == 1 or list(dims) != sorted(dims):
        return op
    return replace(op, kind="reshape", attributes={})


def _reading(op: Op, same: Mapping[int, int]) -> Op:
    """An operation that reads what is the same as its operands."""
    if same.keys().isdisjoint(op.operands):
        return op
    return op.moved(tuple([same.get(value, value) for value in op.operands]))


def _without_barriers(graph: Graph) -> Graph:
    """What a barrier gives is what it takes: it only kept alike computations apart until here.

    What reads it waits for all that it took, which stands in its attributes as ``AFTER``: the compiler puts its program
    in order with the barriers still in it, so that nothing is computed anew before the gradient that asks for it. What
    a barrier takes of a stack, as a turn of a loop does of what is kept for its gradient, is written (``APART``); what
    is read behind one (``BEHIND``) is read where it lies.
    """
    if BARRIER not in graph.kinds:
        return graph
    same: dict[int, int] = {}
    after: dict[int, frozenset[int]] = {}
    taken: dict[int, tuple[int, ...]] = {}
    pieces, given = _pieces(graph), frozenset(graph.arguments)
    ops = []
    for op in graph.ops:
        if op.kind == SLICE and not pieces.isdisjoint(op.results):
            op = replace(op, attributes={**op.attributes, APART: True})
        waits = frozenset[int]().union(*[after[value] for value in op.operands if value in after])
        behind = tuple((same[value], taken[value]) for value in op.operands if value in taken)
        op = _reading(op, same)
        if op.kind == BARRIER:
            taken.update(dict.fromkeys(op.results, op.operands))
            same.update(zip(op.results, op.operands, strict=True))
            after.update(dict.fromkeys(op.results, waits.union(op.operands)))
        else:
            waits = (waits - given).difference(op.operands) if waits else waits
            added: dict[str, object] = {AFTER: tuple(sorted(waits))} if waits else {}
            said = {**added, BEHIND: behind} if behind else added
            ops.append(replace(op, attributes={**op.attributes, **said}) if said else op)
    return replace(graph, ops=tuple(ops), results=tuple(same.get(value, value) for value in graph.results))


def _pieces(graph: Graph) -> frozenset[int]:
    """What is sliced, whatever its shape then, for barriers."""
    makers = {value: op for op in graph.ops if op.kind == SLICE or op.kind in VIEWS for value in op.results}
    found = set[int]()
    for taken in (value for op in graph.ops if op.kind == BARRIER for value in op.operands):
        while taken in makers and makers[taken].kind in VIEWS:
            taken = makers[taken].operands[0]
        if taken in makers:
            found.add(taken)
    return frozenset(found)


def _changes_nothing(graph: Graph, op: Op) -> bool:
    if not op.operands:
        return False
    before, after = graph.values[op.operands[0]], graph.values[op.results[0]]
    if before.shape != after.shape or before.dtype != after.dtype:
        return False
    if op.kind == "transpose":
        return tuple(op.attributes.get("permutation", ())) == tuple(range(len(after.shape)))
    return True


def _is_made_once(op: Op) -> bool:
    return op.kind in ONCE and (op.kind != CONSTANT or "splat" in op.attributes)


def _key(graph: Graph, op: Op, said: dict[int, str]) -> Hashable:
    """What two computations have in common that give the same; ``said`` has the attributes written before, by ``id``,
    of operations that are still there.
    """
    made = tuple([(graph.values[value].shape, graph.values[value].dtype) for value in op.results])
    attributes = said.get(id(op.attributes))
    if attributes is None:
        attributes = said[id(op.attributes)] = repr(sorted(op.attributes.items()))
    return (op.kind, _read_by(op), made, attributes)


def _read_by(op: Op) -> tuple[int, ...]:
    """What an operation reads, in whatever order where that changes nothing: XLA computes ``ab`` and ``ba`` once."""
    return tuple(sorted(op.operands)) if op.kind in COMMUTATIVE else op.operands


def _living(graph: Graph) -> Graph:
    """Only what a result needs."""
    needed, kept = set(graph.results), []
    for op in reversed(graph.ops):
        if not needed.isdisjoint(op.results) or not op.results:
            kept.append(op)
            needed.update(op.operands)
    return replace(graph, ops=tuple(reversed(kept)))


def _inside(op: Op, *, rounds: bool) -> Op:
    return replace(op, bodies=tuple(simplify(body, rounds=rounds) for body in op.bodies)) if op.bodies else op
