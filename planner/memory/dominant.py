"""The points of a program that can bind: those whose live tensors no other point's contain."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from .level import Level


def dominant_points(level: Level) -> tuple[frozenset[tuple[tuple[int, ...], int]], ...]:
    """The sets of buffers that are live together and that no other point's set contains.

    A limit on the bytes live at these points is one on all. A buffer is named by the path of its loop and its value.
    """
    nothing: frozenset[tuple[tuple[int, ...], int]] = frozenset()
    sets = [nothing, *(key for key, _ in groupby(_live_sets(level, (), nothing))), nothing]
    neighbours = zip(sets, sets[1:], sets[2:], strict=False)
    return tuple(
        dict.fromkeys(here for before, here, after in neighbours if here and not (here < before or here < after))
    )


def _live_sets(
    level: Level, path: tuple[int, ...], around: frozenset[tuple[tuple[int, ...], int]]
) -> Iterator[frozenset[tuple[tuple[int, ...], int]]]:
    starts: dict[int, list[int]] = {}
    ends: dict[int, list[int]] = {}
    inherited = set(level.heirs.values())
    for buffer, (first, last) in level.spans.items():
        starts.setdefault(first, []).append(buffer)
        ends.setdefault(last if buffer in inherited else last + 1, []).append(buffer)
    live: set[int] = set()
    for point in range(len(level.program.kernels)):
        live.update(starts.get(point, ()))
        live.difference_update(ends.get(point, ()))
        here = around | {(path, buffer) for buffer in live}
        inner = level.bodies.get(point, ())
        if not inner:
            yield here
        for body in inner:
            yield from _live_sets(body, (*path, point), here)
