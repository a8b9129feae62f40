"""Dims cut into one for each of their axes, so that all-to-alls move these alone and no permute turns them round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ....dsl.records import record

Layout = list[list[str]]
"""The axes of each dim, as attributes show them; a part of one as ``"x":(1)2``."""


@record(frozen=True, slots=True)
class Move:
    """An axis that an all-to-all moves from one dim to another."""

    axis: str
    source: int
    target: int


def cut_layouts(
    before: Layout, after: Layout, shape: Sequence[int], moves: Sequence[Move], sizes: Mapping[str, int]
) -> tuple[list[int], list[Layout]] | None:
    """The shape with the first dim of several axes cut into one for each, and the layouts that it goes through.

    First the ``moves`` all at once, then each axis that stays in the dim to the part that its place there is. None
    where a move is of no axis that can be told apart, or something would not come to lie as ``after`` says.
    """
    dim = next((d for d, axes in enumerate(before) if len(axes) > 1), None)
    if dim is None or shape[dim] % math.prod(size_of(axis, sizes) for axis in before[dim]):
        return None
    found = _CutDim(dim, before, shape, sizes)
    if not found.move(moves) or found.apart() != [*after[:dim], *after[dim + 1 :]] or not found.settle(after[dim]):
        return None
    return found.shape, found.layouts


def size_of(axis: str, sizes: Mapping[str, int]) -> int:
    """The size of an axis or of a part of one."""
    return int(axis.rpartition(")")[2]) if axis.endswith(tuple("0123456789")) else sizes[axis]


class _CutDim:
    """A value one of whose dims is cut, and the layouts that it has gone through."""

    def __init__(self, dim: int, before: Layout, shape: Sequence[int], sizes: Mapping[str, int]):
        self.dim, self.axes, self.sizes = dim, before[dim], sizes
        parts = [size_of(axis, sizes) for axis in self.axes]
        rest = shape[dim] // math.prod(parts)
        whole = [rest] * (rest > 1)
        self.count = len(parts) + len(whole)
        self.shape = [*shape[:dim], *parts, *whole, *shape[dim + 1 :]]
        alone = [[axis] for axis in self.axes] + [[] for _ in whole]
        self.layouts: list[Layout] = [[*before[:dim], *alone, *before[dim + 1 :]]]

    def move(self, moves: Sequence[Move]) -> bool:
        """Moves axes from dim to dim, the last of a dim each; whether it could."""
        now = self._next()
        for move in moves:
            source, target = self._place(move.source, move.axis), self._place(move.target, move.axis)
            if source is None or target is None or now[source][-1:] != [move.axis]:
                return False
            now[target].append(now[source].pop())
        return True

    def apart(self) -> Layout:
        """How the dims lie that were not cut."""
        now = self.layouts[-1]
        return [*now[: self.dim], *now[self.dim + self.count :]]

    def settle(self, wanted: Sequence[str]) -> bool:
        """Moves the axes that stay in the dim to the first of its parts, in this order, which all but the last have to
        fill; whether it could.
        """
        for position, axis in enumerate(wanted, self.dim):
            now, size = self.layouts[-1], size_of(axis, self.sizes)
            stands = next((d for d in range(self.dim, self.dim + self.count) if now[d] == [axis]), None)
            if stands is None or (self.shape[position] != size and axis != wanted[-1]):
                return False
            if stands != position:
                if now[position] or self.shape[position] % size:
                    return False
                now = self._next()
                now[position], now[stands] = now[stands], []
        return True

    def _place(self, dim: int, axis: str) -> int | None:
        """Where a dim is, or the part of the one that is cut which is an axis's; None for an axis that has none."""
        if dim == self.dim:
            return dim + self.axes.index(axis) if axis in self.axes else None
        return dim if dim < self.dim else dim + self.count - 1

    def _next(self) -> Layout:
        self.layouts.append([[*axes] for axes in self.layouts[-1]])
        return self.layouts[-1]
