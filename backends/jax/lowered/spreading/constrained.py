"""A graph that a plan's constraints are put into: the rest of it stays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from .....dsl.records import record
from .....planner.graph import Graph, Op
from .entered import EDGE, END, LOOP, NUMBER, POSITION
from .network import CONSTRAINT, Rules
from .uses import Changing, Use, Uses, with_operands


@record(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a constraint stands: behind what makes ``value``, for all that reads it; or of what the operation
    ``reader``, by its place in the graph, reads at ``position``, for that and ``others`` behind it that read it so; or
    before the loop ``reader``, for what in it reads the value (``inside``).
    """

    value: int
    maker: int
    reader: int | None = None
    position: int = 0
    others: tuple[Use, ...] = ()
    inside: tuple[Use, ...] = ()

    @property
    def place(self) -> int:
        """Of which operation it is said."""
        return self.maker if self.reader is None else self.reader


def made_once(constraints: Sequence[tuple[Spot, Any]], room: Sequence[int]) -> list[tuple[Spot, Any]]:
    """Constraints, each with what it says, of which those that say the same of what several read of one value in one
    loop are one: where the first of these reads it. ``room`` has the loop of each operation (``rooms``).
    """
    readers = [(spot.value, said, spot.reader, spot.position) for spot, said in constraints if spot.reader is not None]
    uses = defaultdict[tuple[int, Any, int], dict[Use, None]](dict)
    for value, said, reader, position in sorted(readers, key=lambda each: each[2:]):
        uses[value, said, room[reader]][reader, position] = None
    found = dict[tuple[Spot, Any], None]()
    for spot, said in constraints:
        alike = () if spot.reader is None else tuple(uses[spot.value, said, room[spot.reader]])
        if not alike or alike[0] == (spot.reader, spot.position):
            found[replace(spot, others=alike[1:]) if len(alike) > 1 else spot, said] = None
    return list(found)


def turns(graph: Graph) -> dict[int, tuple[Spot, Spot]]:
    """By each value that a loop leaves where constraints on it stand in the loop: where its turns end and begin."""
    found, loops = dict[int, tuple[Spot, Spot]](), dict[int, tuple[int, Op]]()
    ends = dict[int, tuple[int, Op]]()
    for place, op in enumerate(graph.ops):
        if op.kind in (LOOP, END):
            (loops if op.kind == LOOP else ends)[op.attributes[NUMBER]] = place, op
        elif op.kind == EDGE and op.attributes[NUMBER] in loops:
            position = op.attributes[POSITION]
            (begin, loop), (end, returns) = loops[op.attributes[NUMBER]], ends[op.attributes[NUMBER]]
            last = Spot(value=returns.operands[position], maker=end, reader=end, position=position)
            found[op.results[0]] = last, Spot(value=loop.results[position], maker=begin)
    return found


def constrained(graph: Graph, uses: Uses, spots: Sequence[Spot], rules: Rules) -> tuple[Graph, Uses]:
    """The graph with a constraint at each spot, put there one after the other, which makes the values from the last on;
    and its uses, of which those that change do so in that order.
    """
    first, changing = len(graph.values), Changing(uses)
    before, behind = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
    for number, spot in enumerate(spots, first):
        value = spot.value
        if spot.reader is None:
            for use in list(changing.of(value)):
                changing.move(use, value, number)
            behind[spot.maker].insert(0, number)
        else:
            value = changing.operands.get((spot.reader, spot.position), value)
            for use in spot.inside or ((spot.reader, spot.position), *spot.others):
                changing.move(use, changing.operands.get(use, spot.value), number)
            before[spot.reader].append(number)
        own = -number, 0  # until it has a place
        changing.add(own, value)
        changing.operands[own] = value
    places, ops = dict[int, int](), list[Op]()

    def put(number: int) -> None:
        places[-number] = len(ops)
        spot = spots[number - first]
        origin, factors = graph.ops[spot.place].origin, rules.identity(graph.values[spot.value].shape)
        ops.append(Op(kind=CONSTRAINT, operands=(-1,), results=(number,), factors=factors, origin=origin))

    for place, op in enumerate(graph.ops):
        for number in before.get(place, ()):
            put(number)
        places[place] = len(ops)
        ops.append(op)
        for number in behind.get(place, ()):
            put(number)
    places[len(graph.ops)] = len(ops)
    values = (*graph.values, *(graph.values[spot.value] for spot in spots))
    grown = replace(graph, values=values, ops=tuple(ops))
    operands = {(places[place], position): value for (place, position), value in changing.operands.items()}
    known = [*uses, *([] for _ in spots)]
    moved = [changing.lists.get(value, each) for value, each in enumerate(known)]
    return with_operands(grown, operands), [[(places[place], at) for place, at in each] for each in moved]


def opened(graph: Graph, uses: Uses, stated: Iterable[int], rules: Rules) -> tuple[Graph, Uses]:
    """The graph with a constraint before each loop on whatever it reads from outside that has a stated layout, as
    ``open_for_loops`` puts them: the ``stated`` arguments, and what constraints make. They leave all open.
    """
    known = {value for value in (*stated, *(op.results[0] for op in graph.of_kind(CONSTRAINT))) if graph.shape(value)}
    for numbers in _levels(graph):
        places = {(op.kind, op.attributes[NUMBER]): at for at, op in enumerate(graph.ops) if op.kind in (LOOP, END)}
        makers = {value: place for place, op in enumerate(graph.ops) for value in op.results}
        spots = list[Spot]()
        for begin, end in ((places[LOOP, number], places[END, number]) for number in numbers):
            read = dict.fromkeys(value for op in graph.ops[begin + 1 : end + 1] for value in op.operands)
            for value in (each for each in read if each in known and makers.get(each, -1) < begin):
                inside = tuple([use for use in uses[value] if begin < use[0] <= end])
                spots.append(Spot(value=value, maker=begin, reader=begin, inside=inside))
        if spots:
            graph, uses = constrained(graph, uses, spots, rules)
    return graph, uses


def _levels(graph: Graph) -> list[list[int]]:
    """The numbers of a graph's loops in order, those first in which the most others stand around them."""
    found, depth = list[list[int]](), 0
    for op in graph.ops:
        if op.kind == LOOP:
            depth += 1
            found += [[]] * (depth > len(found))
            found[depth - 1] = [*found[depth - 1], op.attributes[NUMBER]]
        elif op.kind == END:
            depth -= 1
    return found[::-1]
