"""Writes a graph whose layouts were found: with reshards in the place of constraints, its loops nested again.

What Shardy's passes do besides propagation is done to the graph: constants and numbers that are spread are made once
where they lie alike, and a product whose result lies otherwise than what it adds up is resharded behind itself
(``constant_or_scalar_merger.cc``, ``insert_explicit_reshards.cc``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .....planner.graph import Graph, Op
from .entered import BARRIER, EDGE, END, LOOP, NUMBER
from .lying import Lying
from .network import CONSTRAINT

CONCATENATE, CONSTANT, DOT, RESHARD = "concatenate", "constant", "dot_general", "reshard"
MOST_WRITTEN = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What is written of a graph's operations, or of a loop's body, whatever its values' layouts: by the place of each
    value its number in the entered graph (``sources``), and the places of those that it is given and returns.

    ``turned`` are the places of products that are resharded behind themselves, ``loops`` has the bodies by the places
    of their operations.
    """

    ops: tuple[Op, ...]
    sources: tuple[int, ...]
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    turned: tuple[int, ...]
    loops: Mapping[int, Written]


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writes a ``graph`` whose loops are entered as plans lay it out; ``nests`` are the loops and barriers themselves.

    ``alike`` says of values that may be made once what makes them, and of what. ``known`` is what was written, by what
    is made once and which products are resharded.
    """

    graph: Graph
    nests: tuple[Op, ...]
    alike: Mapping[int, tuple[object, tuple[int, ...]]]
    known: dict[tuple[object, ...], Written] = field(default_factory=dict)

    def laid_out(self, layouts: Sequence[int], leaving: Sequence[int], lying: Lying) -> Graph | None:
        """The graph whose values and results lie so; None where Shardy sees to how something is concatenated."""
        if not all(self._lies_alike(op, layouts, lying) for op in self.graph.of_kind(CONCATENATE)):
            return None
        once, turned = self._once(layouts), self._turned(layouts, lying)
        key = tuple(once.items()), tuple(turned)
        written = self.known.get(key)
        if written is None:
            if len(self.known) >= MOST_WRITTEN:
                self.known.clear()
            written = self.known[key] = _written(self.graph, self.nests, once, turned.keys())
        found = self._graph(written, layouts, turned, lying)
        values, ops, results = list(found.values), list(found.ops), list(found.results)
        for position, number in enumerate(leaving):
            if number and lying.sharding(number) != values[results[position]].sharding:
                values.append(replace(values[results[position]], sharding=lying.sharding(number)))
                ops.append(Op(kind=RESHARD, operands=(results[position],), results=(len(values) - 1,)))
                results[position] = len(values) - 1
        arguments = found.arguments
        return replace(self.graph, values=tuple(values), ops=tuple(ops), arguments=arguments, results=tuple(results))

    def _graph(self, written: Written, layouts: Sequence[int], turned: Mapping[int, int], lying: Lying) -> Graph:
        """What was written, its values in these layouts, but for products that are made in others (``turned``)."""
        whole, ops = self.graph.values, written.ops
        values = [lying.value(whole[number], layouts[number]) for number in written.sources]
        for place in written.turned:
            number = written.sources[place]
            values[place] = lying.value(whole[number], turned[number])
        if written.loops:
            laid = list(ops)
            for place, body in written.loops.items():
                laid[place] = replace(ops[place], bodies=(self._graph(body, layouts, turned, lying),))
            ops = tuple(laid)
        return Graph(values=tuple(values), ops=ops, arguments=written.arguments, results=written.results)

    def _lies_alike(self, op: Op, layouts: Sequence[int], lying: Lying) -> bool:
        """Whether all that is concatenated lies as the whole does; else Shardy sees to it."""
        rank = len(self.graph.shape(op.results[0]))
        numbers = {layouts[number] for number in (*op.operands, *op.results)}
        return len({lying.sharding(number) if number else ((),) * rank for number in numbers}) < 2

    def _once(self, layouts: Sequence[int]) -> dict[int, int]:
        """The values that are made already, each with the one that is the same."""
        found: dict[int, int] = {}
        made: dict[object, int] = {}
        for number, (what, operands) in self.alike.items():
            key = what, tuple([found.get(value, value) for value in operands]), layouts[number]
            first = made.setdefault(key, number)
            if first != number:
                found[number] = first
        return found

    def _turned(self, layouts: Sequence[int], lying: Lying) -> dict[int, int]:
        """The results of products that are made in another layout than they lie in, each with that."""
        found = {}
        for op in self.graph.of_kind(DOT):
            numbers = tuple([layouts[number] for number in (*op.operands, *op.results)])
            made = lying.product(op.factors, numbers) if op.factors and all(numbers) else 0
            if made:
                found[op.results[0]] = made
        return found


class _Room:
    """The operations of a graph, or of a loop's body in it, as they are written. ``at`` has the place of each value,
    ``outside`` the numbers of those that come from around the loop, in the order in which they are first read.

    ``constants`` make what is written where it is first read; what is made ``once`` is read in the place of others.
    """

    def __init__(
        self, given: Sequence[int], once: Mapping[int, int], constants: Mapping[int, Op], around: _Room | None = None
    ):
        self.once, self.constants, self.around = once, constants, around
        self.at = {number: place for place, number in enumerate(given)}
        self.sources, self.ops = list(given), list[Op]()
        self.begins: tuple[int, ...] = ()
        self.outside: list[int] = []
        self.turned: list[int] = []
        self.loops: dict[int, Written] = {}

    def place(self, number: int) -> int:
        """The place of a value, which is brought in from outside where it does not stand here."""
        number = self.once.get(number, number)
        found = self.at.get(number)
        if found is None:
            (found,) = self._constant(number) if number in self.constants else self._bring(number)
        return found

    def _constant(self, number: int) -> tuple[int, ...]:
        made = self.make((number,))
        self.ops.append(self.constants[number].moved((), made))
        return made

    def _bring(self, number: int) -> tuple[int, ...]:
        if self.around is None:
            raise KeyError(number)
        self.around.place(number)
        self.outside.append(number)
        return self.make((number,))

    def make(self, numbers: Sequence[int]) -> tuple[int, ...]:
        """The places of new values."""
        made = tuple(range(len(self.sources), len(self.sources) + len(numbers)))
        self.sources += numbers
        self.at.update(zip(numbers, made, strict=True))
        return made

    def written(self, results: Sequence[int], given: Sequence[int]) -> Written:
        """What stands here, which is ``given`` values and returns results."""
        returned = tuple(map(self.place, results))
        return Written(
            ops=tuple(self.ops),
            sources=tuple(self.sources),
            arguments=tuple([self.at[number] for number in (*given, *self.outside)]),
            results=returned,
            turned=tuple(self.turned),
            loops=self.loops,
        )


def _written(graph: Graph, nests: Sequence[Op], once: Mapping[int, int], turned: Collection[int]) -> Written:
    """The operations of a graph where some values are made ``once``, and some products resharded behind themselves."""
    constants = {op.results[0]: op for op in graph.of_kind(CONSTANT)}
    room, begun = _Room(graph.arguments, once, constants), list[tuple[Op, _Room]]()
    for op in graph.ops:
        if op.kind in (EDGE, CONSTANT) or (op.results and op.results[0] in once):
            continue
        operands = tuple(map(room.place, op.operands)) if op.kind != END else ()
        if op.kind == LOOP:
            begun.append((op, room))
            room.begins = operands
            room = _Room(op.results, once, constants, room)
        elif op.kind == END:
            nest, (loop, around) = nests[op.attributes[NUMBER]], begun.pop()
            body = room.written(op.operands, loop.results)
            begins = (*around.begins, *map(around.place, room.outside))
            room = around
            room.loops[len(room.ops)] = body
            room.ops.append(nest.moved(begins, room.make(nest.results)))
        elif op.kind == BARRIER:
            nest = nests[op.attributes[NUMBER]]
            room.ops.append(nest.moved(operands, room.make(nest.results)))
        elif op.kind == CONSTRAINT:
            made = room.make(op.results)
            room.ops.append(
                Op(kind=RESHARD, operands=operands, results=made, attributes=op.attributes, origin=op.origin)
            )
        else:
            made = room.make(op.results)
            room.ops.append(op.moved(operands, made))
            if made and op.results[0] in turned:
                room.turned += made
                again = room.make(op.results)
                room.ops.append(Op(kind=RESHARD, operands=made, results=again, origin=op.origin))
    return room.written(graph.results, graph.arguments)
