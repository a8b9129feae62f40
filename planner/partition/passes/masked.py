"""Rows looked up in a part of a table: zeros take the place of those that others have, before all are added up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...graph import Graph, Op, Value
from ...kinds import ALL_REDUCE, REDUCE_SCATTER
from ...lookups import GATHER

SUMS = frozenset({ALL_REDUCE, REDUCE_SCATTER})
ON_THE_WAY = frozenset({"convert", "reshape"})


def mask_lookups(graph: Graph) -> Graph:
    """The graph with a choice of rows or zeros behind each gather that only a sum over devices reads, in loops too."""
    if not (graph.nesting or GATHER in graph.kinds):
        return graph
    values = list(graph.values)
    reads = graph.reads()
    reads.update(graph.results)
    readers = {value: op for op in graph.ops for value in op.operands if reads[value] == 1}
    ops: list[Op] = []
    for op in graph.ops:
        if op.kind == GATHER and _is_summed(op, readers) and _asks_by_one_number(op, values):
            ops += _masked(op, values)
        else:
            ops.append(replace(op, bodies=tuple(map(mask_lookups, op.bodies))) if op.bodies else op)
    return replace(graph, values=tuple(values), ops=tuple(ops))


def _asks_by_one_number(op: Op, values: Sequence[Value]) -> bool:
    """Whether each row that a gather takes is said by a single index."""
    made, offsets = values[op.results[0]], op.attributes.get("offset_dims", ())
    rows = math.prod(size for dim, size in enumerate(made.shape) if dim not in offsets)
    return values[op.operands[1]].num_elements == rows


def _is_summed(op: Op, readers: dict[int, Op]) -> bool:
    after = readers.get(op.results[0])
    while after is not None and after.kind in ON_THE_WAY:
        after = readers.get(after.results[0])
    return after is not None and after.kind in SUMS


def _masked(op: Op, values: list[Value]) -> Iterator[Op]:
    """The gather, which of its indices lie in the part, and the choice for each row."""
    indices, made = values[op.operands[1]], values[op.results[0]]
    offsets = op.attributes.get("offset_dims", ())
    batch = tuple(dim for dim in range(len(made.shape)) if dim not in offsets)
    first = len(values)
    values += [
        Value(made.shape, made.dtype),
        Value(indices.shape, "pred"),
        Value(tuple(made.shape[dim] for dim in batch), "pred"),
        Value(made.shape, "pred"),
        Value((), made.dtype),
        Value(made.shape, made.dtype),
    ]
    rows, inside, each, mask, zero, zeros = range(first, len(values))
    index, origin = op.operands[1], replace(op.origin, value=None)
    yield replace(op, results=(rows,))
    yield Op(kind="compare", operands=(index, index), results=(inside,), origin=origin)
    yield Op(kind="reshape", operands=(inside,), results=(each,), origin=origin)
    said = {"broadcast_dimensions": batch}
    yield Op(kind="broadcast_in_dim", operands=(each,), results=(mask,), attributes=said, origin=origin)
    yield Op(kind="constant", operands=(), results=(zero,), attributes={"splat": 0.0}, origin=origin)
    said = {"broadcast_dimensions": ()}
    yield Op(kind="broadcast_in_dim", operands=(zero,), results=(zeros,), attributes=said, origin=origin)
    yield Op(kind="select", operands=(mask, rows, zeros), results=op.results, origin=op.origin)
