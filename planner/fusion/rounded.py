"""What products cannot compute in passing and others can: it is written rounded, for the products alone."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, Op
from .narrow import NARROW, WIDE, is_default_precision
from .nature import IN_PASSING, PRODUCTS, takes


def with_roundings(graph: Graph) -> Graph:
    """The graph in which products of default precision read such float32 values as bfloat16 copies.

    The compiler rounds what the matrix unit reads by a conversion of its own. Where a product has to find its operand
    in memory, that is what is written; all else that reads the value computes it anew.
    """
    rounded = _rounded(graph)
    if not rounded:
        return graph
    values, ops = list(graph.values), list[Op]()
    for op in graph.ops:
        if op.kind in PRODUCTS and not rounded.keys().isdisjoint(op.operands) and is_default_precision(op):
            op = op.moved(tuple([rounded.get(value, value) for value in op.operands]))
        ops.append(op)
        for value in op.results:
            if value in rounded:
                values.append(replace(values[value], dtype=NARROW))
                rounded[value] = len(values) - 1
                ops.append(replace(op, kind="convert", operands=(value,), results=(rounded[value],), attributes={}))
    return replace(graph, values=tuple(values), ops=tuple(ops))


def _rounded(graph: Graph) -> dict[int, int]:
    products = [op for op in graph.ops if op.kind in PRODUCTS and is_default_precision(op)]
    makers = {value: op for op in graph.ops if op.kind in IN_PASSING for value in op.results} if products else {}
    found: dict[int, int] = {}
    for op in products:
        for position, value in enumerate(op.operands):
            is_made = value in makers and graph.values[value].dtype == WIDE
            if is_made and not takes(graph, op, position, makers[value]):
                found[value] = value
    if not found:
        return {}
    rounding = set(map(id, products))
    others = {v for op in graph.ops if id(op) not in rounding for v in op.operands}.difference(graph.results)
    return {value: value for value in found if value in others}
