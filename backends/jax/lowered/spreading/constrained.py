"""A graph that a plan's constraints are put into: the rest of it stays."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .....dsl.records import record
from .....planner.graph import Graph, Op
from .network import CONSTRAINT, Rules
from .uses import Changing, Use, Uses, with_operands


@record(frozen=True, slots=True, kw_only=True)
class Spot:
    """Where a constraint stands: behind what makes ``value``, for all that reads it; or of what the operation
    ``reader``, by its place in the graph, reads at ``position``, for that and ``others`` behind it that read it so.
    """

    value: int
    maker: int
    reader: int | None = None
    position: int = 0
    others: tuple[Use, ...] = ()

    @property
    def place(self) -> int:
        """Of which operation it is said."""
        return self.maker if self.reader is None else self.reader


def made_once(constraints: Sequence[tuple[Spot, Any]]) -> list[tuple[Spot, Any]]:
    """Constraints, each with what it says, of which those that say the same of what several read of one value are one:
    where the first of these reads it.
    """
    readers = [(spot.value, said, spot.reader, spot.position) for spot, said in constraints if spot.reader is not None]
    uses = defaultdict[tuple[int, Any], dict[Use, None]](dict)
    for value, said, reader, position in sorted(readers, key=lambda each: each[2:]):
        uses[value, said][reader, position] = None
    found = dict[tuple[Spot, Any], None]()
    for spot, said in constraints:
        alike = () if spot.reader is None else tuple(uses[spot.value, said])
        if not alike or alike[0] == (spot.reader, spot.position):
            found[replace(spot, others=alike[1:]) if len(alike) > 1 else spot, said] = None
    return list(found)


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
            for use in ((spot.reader, spot.position), *spot.others):
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
    lists = [changing.lists.get(value) for value in range(len(values))]
    moved = [uses[v] if each is None else each for v, each in enumerate(lists)]
    return with_operands(grown, operands), [[(places[place], at) for place, at in each] for each in moved]
