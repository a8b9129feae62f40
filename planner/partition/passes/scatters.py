"""A sum of which each device keeps its part is a reduce-scatter."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...graph import Graph, Op
from ...kinds import ALL_REDUCE, REDUCE_SCATTER
from ..layout import Mesh, ways
from ..reshard import SLICE
from ..target import Target


def scatter(graph: Graph, target: Target, mesh: Mesh) -> Graph:
    """The graph with reduce-scatters in the place of all-reduces read by one slice along the same axes alone."""
    readers = Counter(value for op in graph.ops for value in op.operands)
    readers.update(graph.results)
    reduces: dict[int, int] = {}
    ops: list[Op | None] = []
    for op in graph.ops:
        if op.bodies:
            op = replace(op, bodies=tuple(scatter(body, target, mesh) for body in op.bodies))
        where = reduces.get(op.operands[0]) if op.kind == SLICE and "axes" in op.attributes else None
        reduce = ops[where] if where is not None else None
        if reduce is not None and where is not None and _fits(reduce, op, readers, target, mesh):
            ops[where] = None
            op = _joined(reduce, op)
        elif op.kind == ALL_REDUCE:
            reduces[op.results[0]] = len(ops)
        ops.append(op)
    return replace(graph, ops=tuple(op for op in ops if op is not None))


def _fits(reduce: Op, kept: Op, readers: Counter[int], target: Target, mesh: Mesh) -> bool:
    axes = reduce.attributes["axes"]
    if set(axes) != set(kept.attributes["axes"]) or readers[reduce.results[0]] != 1:
        return False
    return target.is_tpu and (target.scatters_whole or ways(axes, mesh) < target.devices)


def _joined(reduce: Op, kept: Op) -> Op:
    attributes = {**reduce.attributes, "dimensions": kept.attributes.get("dimensions", ())}
    return replace(reduce, kind=REDUCE_SCATTER, results=kept.results, attributes=attributes)
