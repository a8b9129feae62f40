"""What reads each value of a graph, in the order in which MLIR's use lists have it: that is the order in which readers
are told of a change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from .....planner.graph import Graph

Use = tuple[int, int]
"""The place of an operation in its graph, and the position of the operand; the step's results are read behind all."""

Uses = list[list[Use]]
"""By value what reads it."""


def uses_of(graph: Graph) -> Uses:
    """The uses of a module that was cloned: those that stand last are the first of their lists."""
    found: Uses = [[] for _ in graph.values]
    for position in range(len(graph.results) - 1, -1, -1):
        found[graph.results[position]].append((len(graph.ops), position))
    for place in range(len(graph.ops) - 1, -1, -1):
        operands = graph.ops[place].operands
        for position in range(len(operands) - 1, -1, -1):
            found[operands[position]].append((place, position))
    return found


class Changing:
    """Uses while operands change: what reads another value from then on is the first of its list."""

    def __init__(self, uses: Uses):
        self._uses = uses
        self.lists: dict[int, list[Use]] = {}
        self.operands: dict[Use, int] = {}
        """What is read now, where it is another value than before."""
        self.behind: list[tuple[int, int]] = []
        """The places of operations that go elsewhere, one after the other: each directly behind another."""

    def of(self, value: int) -> list[Use]:
        """The uses of a value; of one that is new none."""
        found = self.lists.get(value)
        if found is None:
            found = self.lists[value] = list(self._uses[value]) if value < len(self._uses) else []
        return found

    def add(self, use: Use, value: int) -> None:
        """What is new reads a value."""
        self.of(value).insert(0, use)

    def turn(self, value: int) -> None:
        """All that reads a value reads it anew, one after the other."""
        self.of(value).reverse()

    def move(self, use: Use, value: int, other: int) -> None:
        """What reads a value reads another instead."""
        self.of(value).remove(use)
        self.of(other).insert(0, use)
        self.operands[use] = other


def with_operands(graph: Graph, operands: Mapping[Use, int]) -> Graph:
    """The graph whose operations, and results, read other values."""
    ops, results = list(graph.ops), list(graph.results)
    for (place, position), value in operands.items():
        if place == len(ops):
            results[position] = value
        else:
            read = list(ops[place].operands)
            read[position] = value
            ops[place] = ops[place].moved(tuple(read))
    return replace(graph, ops=tuple(ops), results=tuple(results))


def changed(graph: Graph, uses: Uses, changing: Changing) -> tuple[Graph, Uses]:
    """A graph and its uses once they have changed."""
    lists = [changing.lists.get(value, known) for value, known in enumerate(uses)]
    found = with_operands(graph, changing.operands) if changing.operands else graph
    return _in_order(found, lists, changing.behind) if changing.behind else (found, lists)


def _in_order(graph: Graph, uses: Uses, behind: Sequence[tuple[int, int]]) -> tuple[Graph, Uses]:
    """A graph and its uses where operations went behind others."""
    after: dict[int, list[int]] = {}
    for place, other in behind:
        after.setdefault(other, []).insert(0, place)
    moved = {place for place, _ in behind}
    order = [each for place in range(len(graph.ops)) if place not in moved for each in (place, *after.get(place, ()))]
    now = {place: number for number, place in enumerate([*order, len(order)])}
    ops = tuple([graph.ops[place] for place in order])
    return replace(graph, ops=ops), [[(now[place], position) for place, position in each] for each in uses]
