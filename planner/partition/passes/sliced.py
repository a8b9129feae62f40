"""A device's own slice is cut out before numbers are worked on, where one of them is a sum over the devices.

``slice(all_reduce(a) + b)`` is ``slice(all_reduce(a)) + slice(b)``, and the sum can be scattered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from ...fusion.nature import ELEMENTWISE
from ...graph import Graph, Op, Value
from ...kinds import ALL_REDUCE
from ..reshard import SLICE


def slice_sums(graph: Graph) -> Graph:
    """The graph with slices of joined sums above what joins them, in loops too."""
    if graph.nesting:
        ops = (replace(op, bodies=tuple(map(slice_sums, op.bodies))) if op.bodies else op for op in graph.ops)
        graph = replace(graph, ops=tuple(ops))
    if SLICE not in graph.kinds:
        return graph
    readers = graph.reads()
    readers.update(graph.results)
    makers = {op.results[0]: op for op in graph.ops if len(op.results) == 1}
    values = list(graph.values)
    joins = {op.operands[0]: op for op in graph.of_kind(SLICE) if _cuts_a_joined_sum(op, makers, readers, values)}
    if not joins:
        return graph
    moved = {slice_.results[0] for slice_ in joins.values()}
    found: list[Op] = []
    for op in graph.ops:
        if op.results and op.results[0] in joins:
            found += _above(op, joins[op.results[0]], values)
        elif not op.results or op.results[0] not in moved:
            found.append(op)
    return replace(graph, values=tuple(values), ops=tuple(found))


def _cuts_a_joined_sum(op: Op, makers: dict[int, Op], readers: Counter[int], values: list[Value]) -> bool:
    if "axes" not in op.attributes:
        return False
    joint = makers.get(op.operands[0])
    if joint is None or joint.kind not in ELEMENTWISE or readers[op.operands[0]] != 1 or len(joint.operands) < 2:
        return False
    if any(values[n].shape != values[op.operands[0]].shape for n in joint.operands):
        return False
    sums = (makers.get(n) for n in joint.operands if readers[n] == 1)
    axes = set(op.attributes["axes"])
    return any(made is not None and made.kind == ALL_REDUCE and set(made.attributes["axes"]) == axes for made in sums)


def _above(joint: Op, slice_: Op, values: list[Value]) -> Iterator[Op]:
    """A slice of each operand, then what joins them."""
    parts = []
    for operand in joint.operands:
        values.append(Value(values[slice_.results[0]].shape, values[operand].dtype))
        parts.append(len(values) - 1)
        yield replace(slice_, operands=(operand,), results=(parts[-1],))
    yield replace(joint, operands=tuple(parts), results=slice_.results)
