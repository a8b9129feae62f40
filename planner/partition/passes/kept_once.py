"""What scatters change where devices change parts of it: the first one keeps it, all others begin with zeros.

Each device of a group makes a result of its own slices, which are added up. So XLA's partitioner selects the operand on
the first device of a group and zeros (for other reducers what changes nothing) on the others, but where it is that
anyway.
"""

from __future__ import annotations

from dataclasses import replace

from ...graph import Graph, Op
from ...kinds import ALL_REDUCE, REDUCE_SCATTER

SCATTER, SELECT = "scatter", "select"


def keep_once(graph: Graph) -> Graph:
    """The graph with a selection of the operand before each scatter whose results are added up, in loops too."""
    summed = {v for op in graph.of_kind(ALL_REDUCE, REDUCE_SCATTER) for v in op.operands}
    if not graph.nesting and summed.isdisjoint([op.results[0] for op in graph.of_kind(SCATTER)]):
        return graph
    values = list(graph.values)
    uniform = {op.results[0] for op in graph.ops if _is_uniform(graph, op)}

    ops: list[Op] = []
    for op in graph.ops:
        if op.bodies:
            op = replace(op, bodies=tuple(map(keep_once, op.bodies)))
        if op.kind == SCATTER and op.results[0] in summed and op.operands[0] not in uniform:
            values.append(values[op.operands[0]])
            ends = (op.operands[0],) * 3  # zeros and whether to take them are made in passing: they are not read
            made = (len(values) - 1,)
            ops.append(replace(op, kind=SELECT, operands=ends, results=made, attributes={}, factors=None))
            op = op.moved((*made, *op.operands[1:]))
        ops.append(op)
    return replace(graph, values=tuple(values), ops=tuple(ops))


def _is_uniform(graph: Graph, op: Op) -> bool:
    return op.kind == "broadcast_in_dim" and graph.values[op.operands[0]].num_elements == 1
