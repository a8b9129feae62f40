"""What a step's named values are made of: by path, the nearest named values before each, and who makes it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ..graph import Graph, Op, Origin
from ..operands import maker_path, operand_paths

Spot = tuple[str | None, str | None]
"""The place in the model that asks for an operation: source and scope."""

PRODUCTS = ("dot_general", "convolution")
NOTHING: frozenset[str] = frozenset()
GIVEN = frozenset(("",))
"""In the place of a path: what the step's arguments decide, or a loop's turns."""


class Flow:
    """The named values of a step before it is laid out, in program order."""

    def __init__(self, graph: Graph):
        self.order: dict[str, int] = {}
        self.parents: dict[str, frozenset[str]] = {}
        self.spots: dict[str, Spot] = {}
        self.unnamed: dict[Spot, set[str]] = defaultdict(set)
        """By place, what operations there whose results have no path are made of."""
        self.products: set[str] = set()
        self.read_by: dict[str, str] = {}
        """By the path of an operation whose operands another reads that took its place, that one."""
        self.same: dict[str, str] = {}
        """By the path of what is computed once with another, that one's: said of one alone they are computed apart."""
        self.constant: set[str] = set()
        """The values, and operands as they are read, that nothing given to the step decides."""
        self._run(graph, [GIVEN] * len(graph.arguments))

    def _run(self, graph: Graph, given: Sequence[frozenset[str]]) -> list[frozenset[str]]:
        """Goes through a graph whose arguments come from these values; those that its results come from."""
        near = [NOTHING] * len(graph.values)
        for number, paths in zip(graph.arguments, given, strict=False):
            near[number] = paths
        for op in graph.ops:
            for number, paths in zip(op.results, self._made(op, near), strict=False):
                near[number] = paths
        return [near[number] for number in graph.results]

    def _made(self, op: Op, near: Sequence[frozenset[str]]) -> list[frozenset[str]]:
        operands = [near[number] for number in op.operands]
        before = NOTHING.union(*operands)
        inside = [self._run(body, self._entering(op, operands)) for body in op.bodies]
        found = [
            NOTHING.union(*(results[i] for results in inside if i < len(results))) if inside else before
            for i in range(len(op.results))
        ]
        named = dict(op.named)
        if not named:
            self.unnamed[spot_of(op.origin)] |= before - GIVEN
        for place, value in enumerate(op.results):
            path = named.get(value)
            if path is not None:
                self._name(path, op, found[place] if inside else before, operands)
                found[place] = frozenset((path,))
        return found

    def _name(self, path: str, op: Op, made_of: frozenset[str], operands: Sequence[frozenset[str]]) -> None:
        """Notes what a named value is made of, the first time that it is."""
        if path in self.order:
            return
        self.order[path] = len(self.order)
        self.parents[path] = made_of - GIVEN - {path}
        self.same.update(dict.fromkeys(op.origin.also, path))
        for own in (path, *op.origin.also):
            if made_of <= self.constant:
                self.constant.add(own)
            known = (i for i, paths in enumerate(operands) if paths <= self.constant)
            self.constant.update(path for i in known for path in operand_paths(op, i, (own,)))
        self.spots[path] = spot_of(op.origin)
        self.read_by.update((maker_path(read), path) for read in op.origin.reads if read)
        if op.kind in PRODUCTS:
            self.products.add(path)

    @staticmethod
    def _entering(op: Op, operands: Sequence[frozenset[str]]) -> Sequence[frozenset[str]]:
        return [paths | GIVEN for paths in operands] if op.kind == "while" else operands


def spot_of(origin: Origin) -> Spot:
    """The place in the model that an origin tells."""
    return origin.source, origin.scope
