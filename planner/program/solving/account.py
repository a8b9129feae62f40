"""What is of account in what several nodes take together: which of them, and which of the values that these lay out.

What there is but a number of for each row of something larger, or fewer, may lie in any layout beside it: where that is
resharded first, the program says so anyway. A cluster takes as long then, and is not to be evaded so.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..step.seen import Shape
from ..wiring.wires import Node, Wiring
from .exact import Missed

FEWER = 100
"""How many times fewer numbers there are in what is of no account."""


class Account(NamedTuple):
    """By node the shapes of what it lays out, the seconds between the least and the most that its choices cost, and for
    each of these the first choice that is alike in all that is of account.
    """

    shapes: Sequence[frozenset[Shape]]
    spans_s: Sequence[float]
    alike: Sequence[NDArray[np.int64]]

    @classmethod
    def of(cls, wiring: Wiring) -> Account:
        """That of a program's nodes."""
        nodes = wiring.nodes
        shapes = [frozenset(shape for _, shape in _shapes(wiring, node)) for node in nodes]
        return cls(shapes, [float(np.ptp(node.costs)) for node in nodes], [_alike(wiring, node) for node in nodes])

    def decisive(self, missed: Missed) -> Missed:
        """What a cluster takes by those of its nodes that are of account, less what the others may take less."""
        nodes = {*missed.nodes, *missed.read}
        every = frozenset[Shape]().union(*(self.shapes[node] for node in nodes))
        minor = {node for node in nodes if all(_is_minor(shape, every) for shape in self.shapes[node])}
        left_s = missed.seconds - sum(self.spans_s[node] for node in minor)
        if left_s <= 0:
            return missed
        read = {node: same for node, same in missed.read.items() if node not in minor}
        return replace(missed, nodes=tuple(n for n in missed.nodes if n not in minor), read=read, seconds=left_s)

    def choices_like(self, node: int, choice: int) -> frozenset[int]:
        """The choices of a node under which all of account lies as under this one."""
        alike = self.alike[node]
        return frozenset(np.flatnonzero(alike == alike[choice]).tolist())


def _shapes(wiring: Wiring, node: Node) -> Iterable[tuple[int, Shape]]:
    values = wiring.levels[node.level].graph.values
    return ((value, tuple(size for size in values[value].shape if size > 1)) for value in node.layouts)


def _is_minor(shape: Shape, others: Collection[Shape]) -> bool:
    """Whether something else has rows of many numbers where this has one each."""
    size = math.prod(shape)
    return any(math.prod(other) >= FEWER * size and _is_part(shape, other) for other in others)


def _is_part(shape: Shape, other: Shape) -> bool:
    """Whether a shape is another one without some of its dims."""
    dims = iter(other)
    return all(size in dims for size in shape)


def _alike(wiring: Wiring, node: Node) -> NDArray[np.int64]:
    shapes = dict(_shapes(wiring, node))
    every = frozenset(shapes.values())
    large = [layouts for value, layouts in node.layouts.items() if not _is_minor(shapes[value], every)]
    first: dict[object, int] = {}
    rows = zip(*large, strict=True) if large else enumerate(node.costs)
    own = ((row, choice if choice in node.unsaved else None) for choice, row in enumerate(rows))
    return np.array([first.setdefault(row, choice) for choice, row in enumerate(own)], np.int64)
