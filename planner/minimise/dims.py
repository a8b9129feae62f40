"""Which dims of a step's tensors are one logical dim: they meet in a factor of some operation."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from ..graph import Graph, Op
from ..operands import operand_paths, readers_of

Scope = tuple[int, ...]  # the way to a graph inside another: positions of operations and of their bodies


class Classes:
    """Things that have been found to be the same."""

    def __init__(self) -> None:
        self.parents: dict[Hashable, Hashable] = {}

    def copy(self) -> Classes:
        """The same, to be changed on its own."""
        other = Classes()
        other.parents = dict(self.parents)
        return other

    def find(self, item: Hashable) -> Hashable:
        """What stands for all that ``item`` is the same as."""
        while (parent := self.parents.get(item, item)) != item:
            self.parents[item] = self.parents.get(parent, parent)
            item = parent
        return item

    def join(self, items: Iterable[Hashable]) -> None:
        """Makes all of ``items`` the same."""
        first, *others = (self.find(item) for item in items)
        for other in others:
            self.parents[self.find(other)] = first


def logical_dims(graph: Graph) -> Classes:
    """The logical dims of a step. A dim of an argument, result or named value is ``(path, position)``.

    Two dims of one size are the same where an operation has one factor for both: what a matrix product contracts, what
    an addition pairs. A loop's carry is the same on every turn.
    """
    classes = Classes()
    for pair in _pairs(graph, ()):
        classes.join(pair)
    return classes


def _pairs(graph: Graph, scope: Scope) -> Iterator[tuple[Hashable, ...]]:
    """Groups of dims that are the same, of one graph and those inside it. A value's dim is ``(scope, number, i)``."""
    for names, numbers in ((graph.names, graph.arguments), (graph.result_names, graph.results)):
        for path, number in zip(names, numbers, strict=False):
            yield from (((path, i), (scope, number, i)) for i in range(len(graph.shape(number))))
    readers = readers_of(graph)
    for position, op in enumerate(graph.ops):
        for value, path in (*op.named, *_read(op, readers.get(position, ()))):
            yield from (((path, i), (scope, value, i)) for i in range(len(graph.shape(value))))
        yield from _by_factor(graph, op, scope)
        for number, body in enumerate(op.bodies):
            inner = (*scope, position, number)
            yield from _pairs(body, inner)
            yield from _through(graph, scope, op.operands, body, inner, body.arguments)
            yield from _through(graph, scope, op.results, body, inner, body.results)
            if op.kind == "while":
                yield from _through(graph, scope, op.results, body, inner, body.arguments)


def _read(op: Op, paths: Sequence[str]) -> Iterator[tuple[int, str]]:
    """What an operation reads, by the paths that this has as it alone reads it."""
    for place, value in enumerate(op.operands):
        yield from ((value, path) for path in operand_paths(op, place, paths))


def _by_factor(graph: Graph, op: Op, scope: Scope) -> Iterator[tuple[Hashable, ...]]:
    """The dims of an operation's operands and results that are one factor, the whole of it."""
    if op.factors is None:
        return
    found: dict[int, list[Hashable]] = {}
    sides = ((op.operands, op.factors.operands), (op.results, op.factors.results))
    for numbers, dims_of in sides:
        for value, dims in zip(numbers, dims_of, strict=False):
            for i, factors in enumerate(dims):
                if len(factors) == 1 and graph.shape(value)[i] == op.factors.sizes[factors[0]]:
                    found.setdefault(factors[0], []).append((scope, value, i))
    yield from (tuple(same) for same in found.values() if len(same) > 1)


def _through(
    graph: Graph, scope: Scope, outside: tuple[int, ...], body: Graph, inner: Scope, inside: tuple[int, ...]
) -> Iterator[tuple[Hashable, ...]]:
    """The dims of values that go into a body or come out of it, where the shapes are the same."""
    for a, b in zip(outside, inside, strict=False):
        if graph.shape(a) == body.shape(b):
            yield from (((scope, a, i), (inner, b, i)) for i in range(len(graph.shape(a))))
