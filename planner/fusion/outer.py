"""Products whose summed dims have one place: the compiler multiplies number by number, in passing, and writes none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..graph import Factors, Graph, Op, Value
from .nature import BROADCAST

PRODUCT, RESULT = "dot_general", -1

Rows = tuple[tuple[int, ...], ...]


def with_multiplications(graph: Graph) -> Graph:
    """The graph in which such products (gradients of one example, of rows by columns) are multiplications.

    What they spread, and make wider, has new numbers; the loops are the product's. Seen on v3 and v5e: a batch of
    [M, 1] by [1, N] is computed by each that reads it.
    """
    if not any(_is_outer(graph, op) for op in graph.ops):
        return graph
    values, ops = list(graph.values), list[Op]()
    for op in graph.ops:
        ops += _multiplied(values, graph, op) if _is_outer(graph, op) else [op]
    return replace(graph, values=tuple(values), ops=tuple(ops))


def _is_outer(graph: Graph, op: Op) -> bool:
    if op.kind != PRODUCT or "lhs_contracting_dimensions" not in op.attributes:
        return False
    shape = graph.shape(op.operands[0])
    places: int = math.prod(shape[dim] for dim in op.attributes["lhs_contracting_dimensions"])
    return places == 1


def _multiplied(values: list[Value], graph: Graph, op: Op) -> Iterator[Op]:
    """The operations that take the product's place; ``values`` gets theirs."""
    made, unnamed = graph.values[op.results[0]], replace(op.origin, value=None, also=(), values=())
    batch = len(op.attributes.get("lhs_batching_dimensions", ()))
    beside, operands = 0, list[int]()
    for position, value in enumerate(op.operands):
        dims, shape, dtype = _kept(graph, op, position), graph.shape(value), graph.values[value].dtype
        left = sorted(dims)
        order = tuple(map(left.index, dims))
        places = tuple(at if at < batch else at + beside for at in range(len(dims)))
        rows = _loops(op, position)
        steps: list[tuple[str, Value, dict[str, object], Rows]] = [
            ("reshape", Value(tuple(shape[dim] for dim in left), dtype), {}, _picked(rows, left)),
            ("transpose", Value(tuple(shape[dim] for dim in dims), dtype), {"permutation": order}, _picked(rows, dims)),
            (BROADCAST, Value(made.shape, dtype), {"broadcast_dimensions": places}, _loops(op, RESULT)),
            ("convert", made, {}, _loops(op, RESULT)),
        ]
        for kind, result, said, becomes in steps if dtype != made.dtype else steps[:-1]:
            values.append(result)
            factors, number = _factors(op, [rows], becomes), len(values) - 1
            yield Op(kind=kind, operands=(value,), results=(number,), attributes=said, factors=factors, origin=unnamed)
            value, rows = number, becomes
        operands.append(value)
        beside = len(dims) - batch
    factors = _factors(op, [_loops(op, RESULT)] * len(operands), _loops(op, RESULT))
    yield Op(kind="multiply", operands=tuple(operands), results=op.results, factors=factors, origin=op.origin)


def _loops(op: Op, position: int) -> Rows:
    """The factors of each dim of what a product reads or makes; none where it says nothing of its loops."""
    return (*op.factors.operands, *op.factors.results)[position] if op.factors else ()


def _picked(rows: Rows, dims: Sequence[int]) -> Rows:
    return tuple(rows[dim] for dim in dims) if rows else rows


def _factors(op: Op, operands: Sequence[Rows], result: Rows) -> Factors | None:
    """The loops of one of the operations that take a product's place: its own, none of which is added up."""
    if op.factors is None:
        return None
    return replace(op.factors, operands=tuple(operands), results=(result,), reduction=())


def _kept(graph: Graph, op: Op, position: int) -> tuple[int, ...]:
    """An operand's dims in the order in which the result has them: those of the batch, then its own."""
    side = ("lhs", "rhs")[position]
    batch = tuple(op.attributes.get(f"{side}_batching_dimensions", ()))
    summed = {*op.attributes.get(f"{side}_contracting_dimensions", ())}
    own = (dim for dim in range(len(graph.shape(op.operands[position]))) if dim not in {*batch, *summed})
    return (*batch, *own)
