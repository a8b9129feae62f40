"""Gathers that are sums of what devices have among zeros.

The TPU compiler gathers so vectors whose parts are less than a tile, and on slices of many chips whatever all devices
of one gather, which a sum brings along all dims of the torus at once: on a torus of two dims where it is small.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ...graph import Graph, Op, plain_op
from ...kinds import ALL_GATHER, ALL_REDUCE
from ..layout import Mesh
from ..target import Target

TILE_NUMBERS = 1024

Chosen = Callable[[Op, Graph], bool]


def sum_small_gathers(graph: Graph) -> Graph:
    """The graph with an all-reduce for each all-gather of a vector with parts smaller than a tile, in loops too."""
    return _summed(graph, _is_small)


def sum_whole_gathers(graph: Graph, target: Target, mesh: Mesh) -> Graph:
    """The graph with an all-reduce for each all-gather of a whole slice that the compiler makes one, in loops too."""
    if not target.may_sum_gathers:
        return graph

    def is_chosen(op: Op, graph: Graph) -> bool:
        if op.kind != ALL_GATHER:
            return False
        return target.sums_gather(op.attributes.get("axes", ()), mesh, graph.values[op.results[0]].num_bytes)

    return _summed(graph, is_chosen)


def _summed(graph: Graph, is_chosen: Chosen) -> Graph:
    if not any(op.bodies or is_chosen(op, graph) for op in graph.ops):
        return graph
    values = list(graph.values)
    said: dict[int, Mapping[str, Any]] = {}  # one mapping for all alike, by which alike kernels are known

    ops: list[Op] = []
    for op in graph.ops:
        if not is_chosen(op, graph):
            bodies = tuple(_summed(body, is_chosen) for body in op.bodies)
            ops.append(replace(op, bodies=bodies) if bodies else op)
            continue
        values.append(values[op.results[0]])
        inner = (len(values) - 1,)
        ops.append(plain_op("pad", op.operands, inner, {}, op.origin))
        summing = said.setdefault(id(op.attributes), {**op.attributes, "reducer": "add"})
        ops.append(plain_op(ALL_REDUCE, inner, op.results, summing, op.origin))
    return replace(graph, values=tuple(values), ops=tuple(ops))


def _is_small(op: Op, graph: Graph) -> bool:
    if op.kind != ALL_GATHER:
        return False
    part = graph.values[op.operands[0]]
    return len(part.shape) == 1 and part.num_elements % TILE_NUMBERS != 0
