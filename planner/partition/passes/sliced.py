"""A device's own slice is cut out before numbers are worked on, where one of them is a sum over the devices.

``slice(all_reduce(a) + b)`` is ``slice(all_reduce(a)) + slice(b)``, and the sum can be scattered: through as many
operations as only the slice reads, number by number or transposes, as compiled for v3, v4, v5e and v6e; what is viewed
with other dims, padded or put side by side is cut where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, replace

from ...fusion.nature import ELEMENTWISE
from ...graph import Graph, Op, Value
from ...kinds import ALL_REDUCE
from ..reshard import SLICE


def slice_sums(graph: Graph) -> Graph:
    """The graph with slices of joined sums above what joins them, in loops too."""
    if graph.nesting:
        ops = (replace(op, bodies=tuple(map(slice_sums, op.bodies))) if op.bodies else op for op in graph.ops)
        graph = replace(graph, ops=tuple(ops))
    while SLICE in graph.kinds:
        moved = _moved(graph)
        if moved is graph:
            break
        graph = moved
    return graph


def _moved(graph: Graph) -> Graph:
    """The graph with such slices above one operation each."""
    readers = graph.reads()
    readers.update(graph.results)
    makers = {op.results[0]: op for op in graph.ops if len(op.results) == 1}
    cuts = _Cuts(graph, makers, readers)
    joins = {op.operands[0]: op for op in graph.of_kind(SLICE) if "axes" in op.attributes and cuts.a_sum(op)}
    if not joins:
        return graph
    moved, values = {slice_.results[0] for slice_ in joins.values()}, list(graph.values)
    found: list[Op] = []
    for op in graph.ops:
        if op.results and op.results[0] in joins:
            found += _above(op, joins[op.results[0]], values)
        elif not op.results or op.results[0] not in moved:
            found.append(op)
    return replace(graph, values=tuple(values), ops=tuple(found))


@dataclass(frozen=True, slots=True)
class _Cuts:
    """Which slices are of what is made of a sum."""

    graph: Graph
    makers: Mapping[int, Op]
    readers: Counter[int]

    def a_sum(self, slice_: Op) -> bool:
        """Whether a slice along the axes of a sum over devices is of what operations make of it, but not of itself."""
        made, axes = self.makers.get(slice_.operands[0]), set(slice_.attributes["axes"])
        return made is not None and made.kind != ALL_REDUCE and self._leads(slice_.operands[0], axes)

    def _leads(self, value: int, axes: Set[str]) -> bool:
        """Whether a value that nothing else reads is a sum along these axes, or is made of one."""
        stack = [value]
        while stack:
            value = stack.pop()
            made = self.makers.get(value)
            if made is None or self.readers[value] != 1:
                continue
            if made.kind == ALL_REDUCE and set(made.attributes["axes"]) == axes:
                return True
            if self._is_cut_through(made):
                stack += made.operands
        return False

    def _is_cut_through(self, made: Op) -> bool:
        shape = self.graph.shape(made.results[0])
        return made.kind == "transpose" or (
            made.kind in ELEMENTWISE and all(self.graph.shape(number) == shape for number in made.operands)
        )


def _above(joint: Op, slice_: Op, values: list[Value]) -> Iterator[Op]:
    """A slice of each operand, then what makes one of them."""
    shape, attributes, parts = values[slice_.results[0]].shape, slice_.attributes, []
    if joint.kind == "transpose":
        order = joint.attributes["permutation"]
        shape = tuple(shape[order.index(dim)] for dim in range(len(order)))
        dims = tuple(order[dim] for dim in attributes.get("dimensions", ()))
        attributes = {**attributes, **({"dimensions": dims} if "dimensions" in attributes else {})}
    for operand in joint.operands:
        values.append(Value(shape, values[operand].dtype))
        parts.append(len(values) - 1)
        yield replace(slice_, operands=(operand,), results=(parts[-1],), attributes=attributes)
    yield replace(joint, operands=tuple(parts), results=slice_.results)
