"""Which donated arguments JAX pairs with results, and which it leaves to the compiler."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any


def donations(
    arguments: Sequence[Any],
    results: Sequence[Any],
    donated: Sequence[bool],
    known: Sequence[bool],
) -> tuple[list[int | None], list[bool]]:
    """For each argument the result that it is paired with, and whether the compiler may use it as it likes.

    ``arguments`` and ``results`` are abstract values, ``known`` says of which results it is clear how they lie: where
    propagation decides JAX cannot pair one.
    """
    waiting = _by([(a.shape, a.dtype) for a in arguments], donated)
    aliased: list[int | None] = [None] * len(arguments)
    given = [False] * len(arguments)
    for i, aval in enumerate(results):
        same = waiting.get((aval.shape, aval.dtype))
        if same:
            argument = same.popleft()
            aliased[argument], given[argument] = (i, False) if known[i] else (None, True)
    left = [d and a is None and not g for d, a, g in zip(donated, aliased, given, strict=True)]
    free = _by([aval.size for aval in results], [i not in aliased for i in range(len(results))])
    for i, aval in enumerate(arguments):
        if left[i] and (not all(known) or free.get(aval.size)):
            given[i] = True
            if free.get(aval.size):
                free[aval.size].popleft()
    return aliased, given


def _by(keys: Sequence[Any], chosen: Sequence[bool]) -> dict[Any, deque[int]]:
    found: dict[Any, deque[int]] = {}
    for i, (key, is_chosen) in enumerate(zip(keys, chosen, strict=True)):
        if is_chosen:
            found.setdefault(key, deque()).append(i)
    return found
