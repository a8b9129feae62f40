"""Builds the planner's graph from the operations of a block of MLIR, and those of the regions in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jaxlib.mlir import ir

from ....planner.graph import Graph, Op, Sharding, Value, plain_op
from .loops import CONSTANTS
from .reading import Reading
from .regions import BUILDERS, operation_parts


class Body:
    """The graph of one block so far: its values, its operations, and what it reads from outside.

    Constants are put where they are first read, so that no loop takes one from outside.
    """

    def __init__(self, reading: Reading, parent: Body | None = None):
        self.reading = reading
        self.captured: dict[Any, int] = {}
        self._parent = parent
        self._values: list[Value] = []
        self._ops: list[Op] = []
        self._arguments: list[int] = []
        self._results: list[int] = []
        self._numbers: dict[Any, int] = {}

    def read(self, block: Any, arguments: Iterable[Value]) -> Body:
        """Adds a block: its arguments, which are these values, and its operations up to the one that returns."""
        self._arguments = [self._add(v, value) for v, value in zip(block.arguments, arguments, strict=True)]
        *operations, ret = [op.operation for op in block.operations]
        for operation in operations:
            if operation.name not in CONSTANTS:
                self._operation(operation)
        self._results = [self.number(value) for value in ret.operands]
        return self

    def lay_out_results(self, shardings: Iterable[Sharding | None]) -> None:
        """Reshards each result that is to leave otherwise than it is laid out; None leaves it."""
        for position, (number, sharding) in enumerate(zip(self._results, shardings, strict=True)):
            if sharding is not None and sharding != self._values[number].sharding:
                self._values.append(replace(self._values[number], sharding=sharding))
                self._results[position] = len(self._values) - 1
                self._ops.append(Op(kind="reshard", operands=(number,), results=(len(self._values) - 1,)))

    def inner(self, block: Any, arguments: Iterable[Value] = ()) -> Body:
        """A block inside one of this one's operations, read."""
        return Body(self.reading, self).read(block, arguments)

    def number(self, value: Any) -> int:
        """The number of a value that stands in this graph, or is brought into it from outside."""
        found = self._numbers.get(value)
        if found is None:
            owner = value.owner
            if not isinstance(owner, ir.Block) and owner.name in CONSTANTS:
                self._constant(owner.operation, value)
            else:
                self.capture(value)
            found = self._numbers[value]
        return found

    def operands(self, operation: Any) -> tuple[int, ...]:
        """The numbers of what an operation reads."""
        values = list(operation.operands)
        found = [self._numbers.get(value) for value in values]
        if None in found:
            return tuple([self.number(value) for value in values])
        return tuple(found)  # type: ignore[arg-type]

    def value(self, value: Any) -> Value:
        """What is known of a value that stands in this graph, or is brought into it from outside."""
        return self._values[self.number(value)]

    def capture(self, value: Any) -> int:
        """The number in this graph of a value from outside of it."""
        if self._parent is None:
            raise KeyError(value)
        if value not in self.captured:
            self.captured[value] = self._add(value, self._parent.value(value))
        return self.captured[value]

    def graph(self, captured: Sequence[Any] = (), **more: Any) -> Graph:
        """The graph. Its arguments are the block's, then ``captured`` from outside."""
        return Graph(
            arguments=(*self._arguments, *map(self.capture, captured)),
            values=tuple(self._values),
            ops=tuple(self._ops),
            results=tuple(self._results),
            **more,
        )

    def _add(self, value: Any, known: Value) -> int:
        self._numbers[value] = number = len(self._values)
        self._values.append(known)
        return number

    def _constant(self, operation: Any, value: Any) -> None:
        (made,) = self.reading.results((value,), self.reading.form(operation, 1))
        number = self._add(value, made)
        self._ops.append(Op(kind="constant", results=(number,), attributes=self.reading.constant(operation)))

    def _operation(self, operation: Any) -> None:
        made = list(operation.results)
        form = self.reading.form(operation, len(made))
        parts = BUILDERS.get(form.name, operation_parts)(self, operation, form)
        known = zip(made, self.reading.results(made, form), strict=True)
        results = tuple([self._add(result, value) for result, value in known])
        origin = self.reading.origins.of(operation.location, len(results))
        origin = origin if form.exchanged is None else replace(origin, exchanged=form.exchanged)
        said = parts.get("attributes", {}), origin, form.factors, parts.get("bodies", ()), parts.get("trips", 1)
        self._ops.append(plain_op(parts.get("kind", form.kind), parts["operands"], results, *said))
