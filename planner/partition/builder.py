"""The graph of one device as it is written down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..graph import Graph, Op, Origin, Sharding, Value
from ..kinds import ALL_REDUCE, COLLECTIVE_PERMUTE
from .layout import Mesh, local_shape, used, ways
from .reshard import Step, reshard_steps
from .reused import Reused, Written


class Builder:
    """Values and operations of one device, and the layouts in which values already stand."""

    def __init__(self, mesh: Mesh, reused: Reused | None = None):
        self.mesh = mesh
        self.values: list[Value] = []
        self.ops: list[Op] = []
        self._made: dict[tuple[object, ...], int] = {}
        self._asked: set[tuple[object, ...]] = set()
        self._standing: dict[tuple[int, Sharding], int] = {}
        reused = reused or Reused()
        self._steps, self._sums = reused.steps, reused.sums
        self._uniform: dict[int, tuple[int, Mapping[str, Any], Origin]] = {}
        self._known = reused.parts

    def part(self, shape: tuple[int, ...], dtype: str, layout: Sharding) -> Value:
        """What one device holds of a global value."""
        key = (shape, dtype, layout)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = Value(local_shape(shape, layout, self.mesh), dtype)
        return found

    def value(self, value: Value) -> int:
        """Writes a value down."""
        self.values.append(value)
        return len(self.values) - 1

    def op(
        self,
        kind: str,
        operands: Sequence[int],
        results: Sequence[Value],
        attributes: Mapping[str, Any],
        origin: Origin,
        bodies: tuple[Graph, ...] = (),
        trips: int = 1,
    ) -> tuple[int, ...]:
        """Writes an operation down and returns its results."""
        first = len(self.values)
        self.values.extend(results)
        numbers = tuple(range(first, len(self.values)))
        self.ops.append(
            Op(
                kind=kind,
                operands=tuple(operands),
                results=numbers,
                attributes=attributes,
                bodies=bodies,
                trips=trips,
                origin=origin,
            )
        )
        if kind == "broadcast_in_dim" and not self.values[operands[0]].shape:
            self._uniform[first] = (operands[0], attributes, origin)
        return numbers

    def same(self, op: Op, operands: tuple[int, ...], results: Sequence[Value]) -> int:
        """Writes an operation down as it is, on a device's parts, and returns its first result."""
        first = len(self.values)
        self.values += results
        numbers = (first,) if len(results) == 1 else tuple(range(first, len(self.values)))
        self.ops.append(
            Op(kind=op.kind, operands=operands, results=numbers, attributes=op.attributes, origin=op.origin)
        )
        if op.kind == "broadcast_in_dim" and not self.values[operands[0]].shape:
            self._uniform[first] = (operands[0], op.attributes, op.origin)
        return first

    def inlined(self, graph: Graph, operands: Sequence[int]) -> tuple[int, ...]:
        """Writes down the operations of a graph whose arguments are ``operands``; returns its results."""
        at = dict(zip(graph.arguments, operands, strict=True))
        for number, value in enumerate(graph.values):
            if number not in at:
                at[number] = self.value(value)
        for op in graph.ops:
            reads, makes = (tuple(at[number] for number in numbers) for numbers in (op.operands, op.results))
            self.ops.append(op.moved(reads, makes))
        return tuple(at[number] for number in graph.results)

    def once(self, key: tuple[object, ...], kind: str, operand: int, result: Value, asker: Op) -> int:
        """The result of an operation on one value, written down the first time that it is asked for."""
        found = self._made.get(key)
        if found is None:
            (found,) = self.op(kind, (operand,), (result,), {}, asker.origin)
            self._made[key] = found
        return found

    def is_first(self, key: tuple[object, ...]) -> bool:
        """Whether nobody asked this of the key before."""
        is_new = key not in self._asked
        self._asked.add(key)
        return is_new

    def reshard(self, value: int, whole: Value, source: Sharding, target: Sharding, origin: Origin) -> int:
        """The value in another layout; ``whole`` is the global one. Where it stands so already it is used again."""
        if source == target:
            return value
        if value in self._uniform:
            return self._again(value, self.part(whole.shape, whole.dtype, target))
        if ways(used(target), self.mesh) < ways(used(source), self.mesh):
            return self._stand(value, whole, source, target, origin)  # XLA keeps no gathered value for later
        found = self._standing.get((value, target))
        if found is None:
            found = self._stand(value, whole, source, target, origin)
            self._standing[value, target] = found
        return found

    def _again(self, value: int, part: Value) -> int:
        """A number broadcast into another part: every device has it, whatever the layout."""
        number, attributes, origin = self._uniform[value]
        return self.op("broadcast_in_dim", (number,), (part,), attributes, origin)[0]

    def _stand(self, value: int, whole: Value, source: Sharding, target: Sharding, origin: Origin) -> int:
        steps = self._steps.get((source, target))
        if steps is None:
            steps = self._steps[source, target] = tuple(_written(reshard_steps(source, target, self.mesh), source))
        for step, attributes in steps:
            part = self.part(whole.shape, whole.dtype, step.layout)
            (value,) = self.op(step.kind, (value,), (part,), attributes, origin)
        return value

    def sum(self, value: int, axes: Sequence[str], reducer: str, origin: Origin) -> int:
        """A value summed over the devices along some axes."""
        key = tuple(axes), reducer
        attributes = self._sums.setdefault(key, {"axes": key[0], "dimensions": (), "reducer": reducer})
        return self.op(ALL_REDUCE, (value,), (self.values[value],), attributes, origin)[0]


def _written(steps: Iterable[Step], source: Sharding) -> Iterator[Written]:
    """Steps from a layout with the attributes of the operations that they are."""
    for step in steps:
        attributes: dict[str, Any] = {"axes": step.axes, "dimensions": step.dims}
        if step.kind == COLLECTIVE_PERMUTE:
            attributes |= {"source": source, "target": step.layout}
        source = step.layout
        yield step, attributes
