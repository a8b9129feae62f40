"""A graph whose loops are entered: their operations stand in it as if they turned once, as propagation sees them.

What a loop carries lies one way wherever its turns read it, and what is made of it: Shardy's data flow edges
(``add_data_flow_edges.cc``), which stand behind the loop, one for each value, and behind an optimisation barrier.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jaxlib.mlir import ir

from .....planner.graph import Graph, Op, Value
from ..attributes import LIES
from ..body import Body
from ..propagation import is_simple, main_function
from ..reading import Reading
from ..rewrites.simplify import nested
from ..value_names import WHILE
from .uses import Use, Uses, uses_of

LOOP, END, EDGE, BARRIER = "while", "return", "data_flow_edge", "optimization_barrier"
"""Where a loop begins, which reads what it begins with and makes what its turns read; where its body returns; what
makes each value that it leaves; what hands on values together.
"""
FLOW = frozenset({LOOP, END, EDGE, BARRIER})
NUMBER, POSITION = "number", "position"
"""The attributes by which these name their loop or barrier, and an edge the value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entered:
    """The ``graph`` of a module, its loops entered, with its ``uses``.

    ``nests`` are the loops and barriers themselves, by number, each with what it leaves. ``numbers`` has the number of
    each of the module's values, but of constants that nothing reads.
    """

    graph: Graph
    uses: Uses
    nests: tuple[Op, ...]
    numbers: Mapping[Any, int]

    @classmethod
    def read(cls, module: Any, reading: Reading, names: Mapping[str, Any]) -> Entered | None:
        """The same of a module that Shardy has split; None where not all that it enters is known: branches, several
        functions, loops that state how their values lie, or whose turns hang on more than numbers.

        ``names`` are those of the graph's arguments and results.
        """
        if not is_simple(module):
            return None
        main = main_function(module)
        if not all(_is_plain(operation) for operation, name in nested(main) if name == WHILE):
            return None
        block = main.regions[0].blocks[0]
        body = Body(reading).read(block, [reading.value(each.type, None) for each in block.arguments])
        whole, entering = body.graph(**names), _Entering()
        arguments = tuple([entering.add(whole.values[number]) for number in whole.arguments])
        results = entering.enter(body, whole, arguments)
        if results is None:
            return None
        values, ops = tuple(entering.values), tuple(entering.ops)
        graph = replace(whole, values=values, ops=ops, arguments=arguments, results=results)
        return cls(graph=graph, uses=uses_of(graph), nests=tuple(entering.nests), numbers=entering.numbers)

    def makers(self) -> dict[int, int]:
        """The place behind which a value stands made: of what a loop or a barrier leaves, that of its last edge."""
        found, last = dict[int, int](), dict[int, int]()
        for place, op in enumerate(self.graph.ops):
            if op.kind == EDGE:
                last[op.attributes[NUMBER]] = place
            found.update(dict.fromkeys(op.results, place))
        for number, nest in enumerate(self.nests):
            found.update(dict.fromkeys(nest.results, last[number]) if nest.results else {})
        return found


class Flow:
    """What the loops and barriers of a graph hand on: ``left`` has, by what a loop's turns read, what it leaves, which
    lies as that does.
    """

    def __init__(self, graph: Graph):
        self._sources: dict[int, list[tuple[int, ...]]] = {}
        self._edges: dict[int, list[int]] = {}
        self._ends: dict[int, int] = {}
        self.left: dict[int, int] = {}
        turning: dict[int, tuple[int, ...]] = {}
        for place, op in enumerate(graph.ops):
            if op.kind not in FLOW:
                continue
            number = op.attributes[NUMBER]
            if op.kind == EDGE:
                self._edges.setdefault(number, []).append(place)
                if number in turning:
                    self.left[turning[number][op.attributes[POSITION]]] = op.results[0]
                continue
            self._sources.setdefault(number, []).append(op.operands)
            self._ends[place] = number
            if op.kind == LOOP:
                turning[number] = op.results

    def tensors(self, edge: Op) -> tuple[int, ...]:
        """What an edge makes a value of, and the value."""
        number, position = edge.attributes[NUMBER], edge.attributes[POSITION]
        return (*(each[position] for each in self._sources[number]), *edge.results)

    def readers(self, uses: Iterable[Use]) -> Iterator[int]:
        """The places of what hears of a change of a value that is read so: of loops and barriers their edges."""
        for place, position in uses:
            number = self._ends.get(place)
            yield place if number is None else self._edges[number][position]


def rooms(graph: Graph) -> list[int]:
    """The loop, by number, in which each of a graph's operations stands, 0 outside of all."""
    found, within = list[int](), [0]
    for op in graph.ops:
        found.append(within[-1])
        if op.kind == LOOP:
            within.append(op.attributes[NUMBER] + 1)
        elif op.kind == END:
            within.pop()
    return found


@dataclass(slots=True)
class _Entering:
    values: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)
    nests: list[Op] = field(default_factory=list)
    numbers: dict[Any, int] = field(default_factory=dict)

    def enter(self, body: Body, graph: Graph, given: Sequence[int]) -> tuple[int, ...] | None:
        """Adds a block, whose arguments are ``given``: what it returns; None where something in it is not known."""
        at, inner = [-1] * len(graph.values), iter(body.inside)
        for place, number in enumerate(graph.arguments):
            at[number] = given[place]
        for op in graph.ops:
            operands = tuple([at[number] for number in op.operands])
            if op.bodies and op.kind != LOOP:
                return None
            made: tuple[int, ...] | None
            if op.kind == LOOP:
                made = self._loop(op, operands, next(inner))
            elif op.kind == BARRIER:
                made = self._barrier(op, operands, [graph.values[number] for number in op.results])
            else:
                made = tuple([self.add(graph.values[number]) for number in op.results])
                self.ops.append(op.moved(operands, made))
            if made is None:
                return None
            for number, value in zip(op.results, made, strict=True):
                at[number] = value
        for value, number in body.numbers():
            self.numbers.setdefault(value, at[number])
        return tuple([at[number] for number in graph.results])

    def add(self, value: Value) -> int:
        """Adds a value: its number."""
        self.values.append(value)
        return len(self.values) - 1

    def _loop(self, op: Op, operands: tuple[int, ...], body: Body) -> tuple[int, ...] | None:
        (graph,), number, count = op.bodies, len(self.nests), len(op.results)
        self.nests.append(op)
        carries = [graph.values[each] for each in graph.arguments[:count]]
        turning = tuple(map(self.add, carries))
        self._append(LOOP, number, operands=operands[:count], results=turning)
        returned = self.enter(body, graph, (*turning, *operands[count:]))
        if returned is None:
            return None
        self._append(END, number, operands=returned)
        return self._edges(number, carries)

    def _barrier(self, op: Op, operands: tuple[int, ...], values: Sequence[Value]) -> tuple[int, ...]:
        number = len(self.nests)
        self.nests.append(op)
        self._append(BARRIER, number, operands=operands)
        return self._edges(number, values)

    def _edges(self, number: int, values: Sequence[Value]) -> tuple[int, ...]:
        """Adds what makes each value that a loop or a barrier leaves."""
        made = tuple(map(self.add, values))
        for position, value in enumerate(made):
            self._append(EDGE, number, position, results=(value,))
        self.nests[number] = self.nests[number].moved((), made)
        return made

    def _append(
        self,
        kind: str,
        number: int,
        position: int = 0,
        operands: tuple[int, ...] = (),
        results: tuple[int, ...] = (),
    ) -> None:
        said, origin = {NUMBER: number, POSITION: position}, self.nests[number].origin
        self.ops.append(Op(kind=kind, operands=operands, results=results, attributes=said, origin=origin))


def _is_plain(loop: Any) -> bool:
    """Whether nothing is stated of how a loop's values lie, and only numbers say whether it turns again."""
    asks = [each.operation for block in loop.regions[0].blocks for each in block.operations]
    values = (value for operation in asks for value in (*operation.operands, *operation.results))
    return LIES not in loop.attributes and not any(ir.RankedTensorType(value.type).rank for value in values)
