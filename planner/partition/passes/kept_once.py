"""What scatters change where devices change parts of it: the first one keeps it, all others begin with zeros.

Each device of a group makes a result of its own slices, which are added up. So XLA's partitioner selects the operand on
the first device of a group and zeros (for other reducers what changes nothing) on the others, but where it is that
anyway.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...graph import Graph, Op, Value
from ...kinds import ALL_REDUCE, REDUCE_SCATTER

SCATTER, SELECT, BROADCAST = "scatter", "select", "broadcast_in_dim"


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
            ops += _selected(op, values)
            op = op.moved((len(values) - 1, *op.operands[1:]))
        ops.append(op)
    return replace(graph, values=tuple(values), ops=tuple(ops))


def _selected(scatter: Op, values: list[Value]) -> Iterator[Op]:
    """The selection: whether a device keeps the operand and the zeros are spread over it in passing, in one kernel."""
    kept = values[scatter.operands[0]]
    first, mask, zero, zeros, made = range(len(values), len(values) + 5)
    values += [Value((), "pred"), Value(kept.shape, "pred"), Value((), kept.dtype), kept, kept]
    for number, spread in ((first, mask), (zero, zeros)):
        yield Op(kind="constant", operands=(), results=(number,), origin=scatter.origin)
        said = {"broadcast_dimensions": ()}
        yield Op(kind=BROADCAST, operands=(number,), results=(spread,), attributes=said, origin=scatter.origin)
    yield Op(kind=SELECT, operands=(mask, scatter.operands[0], zeros), results=(made,), origin=scatter.origin)


def _is_uniform(graph: Graph, op: Op) -> bool:
    return op.kind == BROADCAST and graph.values[op.operands[0]].num_elements == 1
