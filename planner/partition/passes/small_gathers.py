"""Gathers of vectors whose parts are less than a tile are sums of vectors with zeros in them."""

from __future__ import annotations

from dataclasses import replace

from ...graph import Graph, Op, plain_op
from ...kinds import ALL_GATHER, ALL_REDUCE

TILE_NUMBERS = 1024


def sum_small_gathers(graph: Graph) -> Graph:
    """The graph with an all-reduce for each all-gather of a vector with parts smaller than a tile, in loops too."""
    if not any(op.bodies or _is_small(op, graph) for op in graph.ops):
        return graph
    values = list(graph.values)

    ops: list[Op] = []
    for op in graph.ops:
        if not _is_small(op, graph):
            ops.append(replace(op, bodies=tuple(map(sum_small_gathers, op.bodies))) if op.bodies else op)
            continue
        values.append(values[op.results[0]])
        inner = (len(values) - 1,)
        ops.append(plain_op("pad", op.operands, inner, {}, op.origin))
        ops.append(plain_op(ALL_REDUCE, inner, op.results, {**op.attributes, "reducer": "add"}, op.origin))
    return replace(graph, values=tuple(values), ops=tuple(ops))


def _is_small(op: Op, graph: Graph) -> bool:
    if op.kind != ALL_GATHER:
        return False
    part = graph.values[op.operands[0]]
    return len(part.shape) == 1 and part.num_elements % TILE_NUMBERS != 0
