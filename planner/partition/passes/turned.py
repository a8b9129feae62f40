"""Copies that the TPU compiler makes around all-to-alls and all-gathers.

It cuts the dim that an all-to-all splits into a piece for each device, and needs these outermost in memory. What has
another dim outside of that one is copied first, and what arrives for a dim with another outside is copied into its
place: seen so for every pair of dims of shapes of two to four. What works number by number takes pieces as they lie.

What arrives is never a result of the step itself, but is copied there; what is summed up is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...fusion.nature import ELEMENTWISE
from ...graph import Graph, Op
from ...kinds import ALL_GATHER, ALL_TO_ALL, TURNED_COPY

COPIED = (ALL_GATHER, ALL_TO_ALL)
"""What a result of the step is not left in."""
_TAKING = ELEMENTWISE | {"reduce"}


def turned(graph: Graph) -> Graph:
    """The graph with the copies around its exchanges, in loops too. The step's own results have names."""
    if not any(op.bodies or op.kind in COPIED for op in graph.ops):
        return graph
    return _Turning(graph).graph()


def is_copied(shape: tuple[int, ...], dim: int) -> bool:
    """Whether a part of this shape is copied for an exchange along a dim: whether another dim lies outside of it."""
    return any(size > 1 for size in shape[:dim])


def in_order(graph: Graph) -> set[int]:
    """The values that are read by something that does not take pieces as they lie."""
    inner = set() if graph.result_names else set(graph.results)
    return inner.union(*(op.operands for op in graph.ops if op.kind not in _TAKING))


class _Turning:
    """A graph in which exchanges get their copies."""

    def __init__(self, graph: Graph):
        self.source = graph
        self.values = list(graph.values)
        self.in_order = in_order(graph)
        self.results = frozenset(graph.results) if graph.result_names else frozenset[int]()

    def graph(self) -> Graph:
        """The graph with the copies."""
        ops = [made for op in self.source.ops for made in self._op(op)]
        return replace(self.source, values=tuple(self.values), ops=tuple(ops))

    def _op(self, op: Op) -> Iterator[Op]:
        if op.bodies:
            op = replace(op, bodies=tuple(map(turned, op.bodies)))
        if op.kind not in COPIED or len(op.operands) != 1:
            yield op
            return
        (sent,), (got,) = op.operands, op.results
        before, after = self._turns(op, sent, got)
        if before:
            yield (copy := self._copy(op, sent, self._like(sent)))
            op = replace(op, operands=copy.results)
        if after or (got in self.results and self.values[got].shape):
            pieces = self._like(got)
            yield replace(op, results=(pieces,))
            yield self._copy(op, pieces, got)
        else:
            yield op

    def _turns(self, op: Op, sent: int, got: int) -> tuple[bool, bool]:
        """Whether pieces are brought together before and after a collective."""
        dims = op.attributes.get("dimensions", ())
        if op.kind != ALL_TO_ALL or len(dims) != 2:
            return False, False
        joined, split = dims
        after = got in self.in_order and is_copied(self.values[got].shape, joined)
        return is_copied(self.values[sent].shape, split), after

    def _copy(self, op: Op, value: int, result: int) -> Op:
        return replace(op, kind=TURNED_COPY, operands=(value,), results=(result,), attributes={})

    def _like(self, value: int) -> int:
        self.values.append(self.values[value])
        return len(self.values) - 1
