"""Which axes of a layout stay, split a dim further or move to another dim, by the number of ways alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..graph import Axes, Sharding
from .layout import Mesh, halves, left_over, used, ways


def minor_part(axes: Axes, count: int, mesh: Mesh) -> tuple[Axes, Axes]:
    """A dim's axes as those that stay and the minor ones that split it ``count`` ways, a part of one if need be."""
    kept, moved = list(axes), list[str]()
    while kept and count > 1:
        axis = kept.pop()
        size = ways((axis,), mesh)
        if count % size:
            if size % count or axis not in mesh:
                return axes, ()
            major, axis = halves(axis, size // count, mesh)
            kept.append(major)
            size = count
        moved.insert(0, axis)
        count //= size
    return tuple(kept), tuple(moved)


def taken_axes(spare: list[str], count: int, wanted: Axes, mesh: Mesh) -> Axes | None:
    """Axes out of ``spare`` that split a dim ``count`` ways, those first that it wants; None where there are none."""
    taken: list[str] = []
    for axis in sorted(spare, key=lambda axis: axis not in wanted):
        size = ways((axis,), mesh)
        if count > 1 and count % size == 0:
            spare.remove(axis)
            taken.append(axis)
            count //= size
        elif count > 1 and size % count == 0 and axis in mesh:
            major, rest = halves(axis, count, mesh)
            spare[spare.index(axis)] = rest
            taken.append(major)
            count = 1
    return tuple(taken) if count == 1 else None


def further_split(source: Sharding, target: Sharding, mesh: Mesh) -> Sharding | None:
    """``source`` with each dim split as many ways as in ``target``, by what it leaves of the target's axes."""
    if all(b[: len(a)] == a for a, b in zip(source, target, strict=True)):
        return target
    spare = [*left_over(used(target), used(source), mesh)]
    found = list(source)
    for dim, (own, wanted) in enumerate(zip(source, target, strict=True)):
        taken = taken_axes(spare, ways(wanted, mesh) // ways(own, mesh), wanted, mesh)
        if taken is None:
            return None
        found[dim] = (*own, *taken)
    return tuple(found)


def exchanges(have: Sequence[int], want: Sequence[int]) -> list[tuple[int, int, int]] | None:
    """Moves between dims, as from, to and how many ways, that make one split of the other; None where XLA has none.

    It knows dims that trade places, and pairs of dims that are split as many ways together before and after.
    """
    if math.prod(have) != math.prod(want):
        return None
    now, moves = list(have), list[tuple[int, int, int]]()
    permuted = sorted(have) == sorted(want)
    while now != list(want):
        move = _place(now, want) if permuted else None
        move = move or _pair(now, want)
        if move is None:
            return None
        source, to, count = move
        now[source] //= count
        now[to] *= count
        moves.append(move)
    return moves


def _place(now: Sequence[int], want: Sequence[int]) -> tuple[int, int, int] | None:
    """A dim whose ways another dim wants that has none."""
    for source, count in enumerate(now):
        for to, wanted in enumerate(want):
            if now[to] == 1 < count == wanted and want[source] != count:
                return source, to, count
    return None


def _pair(now: Sequence[int], want: Sequence[int]) -> tuple[int, int, int] | None:
    """Two dims that are split as many ways together as they are to be."""
    for source, count in enumerate(now):
        for to, other in enumerate(now):
            more, rest = divmod(count, want[source])
            if not rest and more > 1 and other * more == want[to]:
                return source, to, more
    return None
