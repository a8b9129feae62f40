"""Builds the planner's graph from the operations of a block of MLIR, and those of the regions in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jaxlib.mlir import ir

from ....planner.graph import Graph, Op, Sharding, Value
from .attributes import FORM, LIES
from .loops import CONSTANTS
from .reading import Form, Reading
from .regions import BUILDERS, operation_parts
from .value_names import without_names

CALL = "func.call"
_ELSEWHERE = frozenset({CALL, *CONSTANTS})


class Body:
    """The graph of one block so far: its values, its operations, and what it reads from outside. ``inside`` are those
    of the blocks in its operations, in order.

    Constants are put where they are first read, so that no loop takes one from outside. What a call calls, of
    ``functions`` by name, is read in its place.
    """

    def __init__(self, reading: Reading, parent: Body | None = None, functions: Mapping[str, Any] | None = None):
        self.reading = reading
        self.captured: dict[Any, int] = {}
        self.inside: list[Body] = []
        self._functions: Mapping[str, Any] = functions or (parent._functions if parent else {})
        self._given: dict[Any, Any] = parent._given if parent else {}  # what calls give for arguments
        self._called: list[Any] = []
        self._caller: Any = parent._caller if parent else None
        self._parent = parent
        self._values: list[Value] = []
        self._ops: list[Op] = []
        self._arguments: list[int] = []
        self._results: list[int] = []
        self._numbers: dict[Any, int] = {}

    def read(self, block: Any, arguments: Iterable[Value]) -> Body:
        """Adds a block: its arguments, which are these values, and its operations up to the one that returns."""
        self._arguments = [self._add(v, value) for v, value in zip(block.arguments, arguments, strict=True)]
        self._results = [self.number(value) for value in self._operations(block)]
        return self

    def _operations(self, block: Any) -> Sequence[Any]:
        """Adds the operations of a block; the values that it returns.

        Most are plain, with one result of which their form says all: these are added here, for every call counts.
        """
        *operations, ret = [op.operation for op in block.operations]
        reading, numbers, values, ops = self.reading, self._numbers, self._values, self._ops
        forms, origins = reading.forms, reading.origins.known if self._caller is None else {}
        for operation in operations:
            name = operation.name
            if name in _ELSEWHERE:
                if name == CALL:
                    self._call(operation)
                continue
            made, said = list(operation.results), operation.attributes
            form = forms.get((said.get(FORM), said.get(LIES))) or reading.form(operation, len(made))
            if not form.is_plain:
                self._operation(operation, made, form)
                continue
            try:
                operands = tuple(map(numbers.__getitem__, operation.operands))
            except KeyError:
                operands = self.operands(operation)
            (result,) = made
            kind, number = result.type, len(values)
            values.append(form.made.get(kind) or self._made(result, form))
            numbers[result] = number
            origin = origins.get(operation.location.attr) or reading.origins.of(self._location(operation))
            ops.append(
                Op(
                    kind=form.kind,
                    operands=operands,
                    results=(number,),
                    attributes=form.plain,
                    factors=form.factors,
                    origin=origin,
                )
            )
        return tuple(ret.operands)

    def _call(self, call: Any) -> None:
        """Reads what a call calls. Its arguments are what the call gives: propagation lays that out before it."""
        block = self._functions[call.attributes["callee"].value].regions[0].blocks[0]
        if block in self._called:
            self._forget(block)
        self._called.append(block)
        self._given.update(zip(block.arguments, call.operands, strict=True))
        caller, self._caller = self._caller, self._location(call)
        returned = [self.number(value) for value in self._operations(block)]
        self._caller = caller
        self._numbers.update(zip(call.results, returned, strict=True))

    def _forget(self, block: Any) -> None:
        """Forgets the values of a function that is called again."""
        for value in (*block.arguments, *(made for op in block.operations for made in op.operation.results)):
            self._numbers.pop(value, None)

    def _location(self, operation: Any) -> Any:
        """Where an operation was written, and who called what it stands in."""
        if self._caller is None:
            return operation.location
        return ir.Location.callsite(without_names(operation.location), [without_names(self._caller)])

    def lay_out_results(self, shardings: Iterable[Sharding | None]) -> None:
        """Reshards each result that is to leave otherwise than it is laid out; None leaves it."""
        for position, (number, sharding) in enumerate(zip(self._results, shardings, strict=True)):
            if sharding is not None and sharding != self._values[number].sharding:
                self._values.append(replace(self._values[number], sharding=sharding))
                self._results[position] = len(self._values) - 1
                self._ops.append(Op(kind="reshard", operands=(number,), results=(len(self._values) - 1,)))

    def inner(self, block: Any, arguments: Iterable[Value] = ()) -> Body:
        """A block inside one of this one's operations, read."""
        self.inside.append(Body(self.reading, self))
        return self.inside[-1].read(block, arguments)

    def number(self, value: Any) -> int:
        """The number of a value that stands in this graph, or is brought into it from outside."""
        found = self._numbers.get(value)
        if found is None and value in self._given:
            found = self._numbers[value] = self.number(self._given[value])
        if found is None:
            owner = value.owner
            if not isinstance(owner, ir.Block) and owner.name in CONSTANTS:
                self._constant(owner.operation, value)
            else:
                self.capture(value)
            found = self._numbers[value]
        return found

    def known(self, value: Any) -> int | None:
        """The number of a value that was read; None of a constant that nothing reads."""
        return self._numbers.get(value)

    def numbers(self) -> Iterable[tuple[Any, int]]:
        """The values that were read, each with its number."""
        return self._numbers.items()

    def operands(self, operation: Any) -> tuple[int, ...]:
        """The numbers of what an operation reads."""
        return tuple(map(self.number, operation.operands))

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

    def _made(self, made: Any, form: Form) -> Value:
        """What is known of the only result of an operation."""
        (value,) = self.reading.results((made,), form)
        form.made[made.type] = value
        return value

    def _operation(self, operation: Any, made: Sequence[Any], form: Form) -> None:
        said = BUILDERS.get(form.name, operation_parts)(self, operation, form)
        operands, bodies, trips = said["operands"], said.get("bodies", ()), said.get("trips", 1)
        first = len(self._values)
        self._values += self.reading.results(made, form)
        results = tuple(range(first, len(self._values)))
        self._numbers.update(zip(made, results, strict=True))
        origin = self.reading.origins.of(self._location(operation), len(results))
        if form.reads and self.reading.is_named:
            origin = replace(origin, reads=form.reads)
        kind, attributes = said.get("kind", form.kind), said.get("attributes", {})
        self._ops.append(
            Op(
                kind=kind,
                operands=operands,
                results=results,
                attributes=attributes,
                factors=form.factors,
                bodies=bodies,
                trips=trips,
                origin=origin,
            )
        )
