"""The sum of two partial sums is summed over the devices once: ``a + b`` of two all-reduces is one of ``a + b``."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from ...graph import Graph, Op
from ...kinds import ALL_REDUCE

_ADDS = {"add": "add", "maximum": "maximum", "minimum": "minimum"}


def reassociate(graph: Graph) -> Graph:
    """The graph with all-reduces moved below the operation that joins them, where nothing else reads them."""
    graph = _with_bodies(graph)
    readers = Counter(value for op in graph.ops for value in op.operands)
    readers.update(graph.results)
    reduces: dict[int, Op] = {}
    ops: list[Op | None] = []
    place: dict[int, int] = {}
    values = list(graph.values)
    for op in graph.ops:
        if op.kind in _ADDS and _joins(op, reduces, readers):
            first = reduces[op.operands[0]]
            for value in op.operands:
                ops[place[value]] = None
            values.append(values[op.results[0]])
            inner = len(values) - 1
            ops.append(replace(op, operands=tuple(reduces[v].operands[0] for v in op.operands), results=(inner,)))
            op = replace(first, operands=(inner,), results=op.results)
        if op.kind == ALL_REDUCE and len(op.results) == 1:
            reduces[op.results[0]] = op
            place[op.results[0]] = len(ops)
        ops.append(op)
    return replace(graph, values=tuple(values), ops=tuple(op for op in ops if op is not None))


def _with_bodies(graph: Graph) -> Graph:
    if not any(op.bodies for op in graph.ops):
        return graph
    ops = (replace(op, bodies=tuple(map(reassociate, op.bodies))) if op.bodies else op for op in graph.ops)
    return replace(graph, ops=tuple(ops))


def _joins(op: Op, reduces: dict[int, Op], readers: Counter[int]) -> bool:
    left, right = (reduces.get(value) for value in op.operands)
    if left is None or right is None or left is right:
        return False
    same = left.attributes["axes"] == right.attributes["axes"]
    reducers = {left.attributes.get("reducer"), right.attributes.get("reducer")}
    alone = all(readers[value] == 1 for value in op.operands)
    return same and alone and reducers == {_ADDS[op.kind]}
