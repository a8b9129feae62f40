"""A device's own slice is cut out before numbers are worked on, where one of them is a sum over the devices.

``slice(all_reduce(a) + b)`` is ``slice(all_reduce(a)) + slice(b)``, and the sum can be scattered: through as many
operations as only the slice reads, number by number or transposes, as compiled for v3, v4, v5e and v6e; what is viewed
with other dims, padded or put side by side is cut where it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...fusion.nature import ELEMENTWISE
from ...graph import Graph, Op, Value
from ...kinds import ALL_REDUCE
from ..reshard import SLICE


def slice_sums(graph: Graph) -> Graph:
    """The graph with slices of what is made of sums above what makes it, in loops too."""
    if graph.nesting:
        ops = (replace(op, bodies=tuple(map(slice_sums, op.bodies))) if op.bodies else op for op in graph.ops)
        graph = replace(graph, ops=tuple(ops))
    if SLICE not in graph.kinds:
        return graph
    readers = graph.reads()
    readers.update(graph.results)
    cuts = _Cuts(graph, {op.results[0]: op for op in graph.ops if len(op.results) == 1}, readers)
    moving = [op for op in graph.of_kind(SLICE) if "axes" in op.attributes and cuts.a_sum(op)]
    return cuts.moved(moving) if moving else graph


@dataclass(slots=True)
class _Cuts:
    """Slices of what is made of sums, and the parts that they are of instead: ``values`` are those of the graph and
    more, ``led`` has which lead to a sum along which axes.
    """

    graph: Graph
    makers: Mapping[int, Op]
    readers: Counter[int]
    values: list[Value] = field(init=False)
    led: dict[tuple[int, frozenset[str]], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = list(self.graph.values)

    def a_sum(self, slice_: Op) -> bool:
        """Whether a slice along the axes of a sum over devices is of what operations make of it, but not of itself."""
        made, axes = self.makers.get(slice_.operands[0]), frozenset(slice_.attributes["axes"])
        return made is not None and made.kind != ALL_REDUCE and self._leads(slice_.operands[0], axes)

    def moved(self, slices: list[Op]) -> Graph:
        """The graph with these slices above all that leads to their sums."""
        place = {id(op): number for number, op in enumerate(self.graph.ops)}
        instead: dict[int, list[Op]] = {place[id(each)]: [] for each in slices}
        waiting = list(slices)
        for slice_ in waiting:  # who cuts a part further up is cut there once more
            joint = self.makers[slice_.operands[0]]
            parts, own = self._above(joint, slice_)
            further = [self.a_sum(each) for each in parts]
            waiting += [each for each, is_moved in zip(parts, further, strict=True) if is_moved]
            here = [each for each, is_moved in zip(parts, further, strict=True) if not is_moved]
            instead[place[id(joint)]] = [*here, own]
        ops = (each for number, op in enumerate(self.graph.ops) for each in instead.get(number, (op,)))
        return replace(self.graph, values=tuple(self.values), ops=tuple(ops))

    def _leads(self, value: int, axes: frozenset[str]) -> bool:
        """Whether a value that nothing else reads is a sum along these axes, or is made of one."""
        stack = [value]
        while stack:
            here = stack.pop()
            made = self.makers.get(here)
            if made is None or self.readers[here] != 1 or self.led.get((here, axes)) is False:
                continue
            if self.led.get((here, axes)) or (made.kind == ALL_REDUCE and axes == {*made.attributes["axes"]}):
                self.led[value, axes] = True
                return True
            if self._is_cut_through(made):
                stack += made.operands
        self.led[value, axes] = False
        return False

    def _is_cut_through(self, made: Op) -> bool:
        shape = self.graph.shape(made.results[0])
        return made.kind == "transpose" or (
            made.kind in ELEMENTWISE and all(self.graph.shape(number) == shape for number in made.operands)
        )

    def _above(self, joint: Op, slice_: Op) -> tuple[list[Op], Op]:
        """A slice of each operand, and what makes of these what the slice was of."""
        shape, attributes, parts = self.values[slice_.results[0]].shape, slice_.attributes, list[Op]()
        if joint.kind == "transpose":
            order = joint.attributes["permutation"]
            shape = tuple(shape[order.index(dim)] for dim in range(len(order)))
            dims = tuple(order[dim] for dim in attributes.get("dimensions", ()))
            attributes = {**attributes, **({"dimensions": dims} if "dimensions" in attributes else {})}
        for operand in joint.operands:
            self.values.append(Value(shape, self.values[operand].dtype))
            made = len(self.values) - 1
            parts.append(replace(slice_, operands=(operand,), results=(made,), attributes=attributes))
        return parts, replace(joint, operands=tuple(part.results[0] for part in parts), results=slice_.results)
