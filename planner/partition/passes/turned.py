"""An all-to-all sends and receives pieces that lie one after another; what lies otherwise is copied before or after.

The TPU compiler cuts the dim that is split into a piece for each device, and needs these outermost in memory. What has
another dim outside of that one is copied first, and what arrives for a dim with another outside is copied into its
place: seen so for every pair of dims of shapes of two to four. What works number by number takes pieces as they lie.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...fusion.nature import ELEMENTWISE
from ...graph import Graph, Op
from ...kinds import ALL_TO_ALL, TURNED_COPY

_TAKING = ELEMENTWISE | {"reduce"}


def turned(graph: Graph) -> Graph:
    """The graph with the copies around its all-to-alls, in loops too."""
    if not any(op.bodies or op.kind == ALL_TO_ALL for op in graph.ops):
        return graph
    return _Turning(graph).graph()


def is_copied(shape: tuple[int, ...], dim: int) -> bool:
    """Whether a part of this shape is copied for an exchange along a dim: whether another dim lies outside of it."""
    return any(size > 1 for size in shape[:dim])


def in_order(graph: Graph) -> set[int]:
    """The values that are results, or read by something that does not take pieces as they lie."""
    found = set(graph.results)
    for op in graph.ops:
        if op.kind not in _TAKING:
            found.update(op.operands)
    return found


class _Turning:
    """A graph in which exchanges get their copies."""

    def __init__(self, graph: Graph):
        self.source = graph
        self.values = list(graph.values)
        self.in_order = in_order(graph)

    def graph(self) -> Graph:
        """The graph with the copies."""
        ops = [made for op in self.source.ops for made in self._op(op)]
        return replace(self.source, values=tuple(self.values), ops=tuple(ops))

    def _op(self, op: Op) -> Iterator[Op]:
        if op.bodies:
            op = replace(op, bodies=tuple(map(turned, op.bodies)))
        dims = op.attributes.get("dimensions", ())
        if op.kind != ALL_TO_ALL or len(dims) != 2 or len(op.operands) != 1:
            yield op
            return
        (sent,), (got,), (joined, split) = op.operands, op.results, dims
        if is_copied(self.values[sent].shape, split):
            yield (before := self._copy(op, sent, self._like(sent)))
            op = replace(op, operands=before.results)
        if got in self.in_order and is_copied(self.values[got].shape, joined):
            pieces = self._like(got)
            yield replace(op, results=(pieces,))
            yield self._copy(op, pieces, got)
        else:
            yield op

    def _copy(self, op: Op, value: int, result: int) -> Op:
        return replace(op, kind=TURNED_COPY, operands=(value,), results=(result,), attributes={})

    def _like(self, value: int) -> int:
        self.values.append(self.values[value])
        return len(self.values) - 1
