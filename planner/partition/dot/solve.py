"""XLA's recursion: the devices are grouped by one class of dims at a time, the first that fits."""

from __future__ import annotations

from collections.abc import Callable

from .base import base_case
from .groups import Group, by_batch, by_contracted, by_free
from .problem import Ask, Choice, Loops, axes_of

_GROUPS: tuple[Group, ...] = (by_batch, by_free, by_contracted)


def choose(loops: Loops, ask: Ask) -> Choice:
    """How XLA's partitioner computes a product whose tensors have these splits: batch dims first, then free dims."""
    found = base_case(loops, ask, False) or _grouped(loops, ask, matching=True)
    found = found or _without_spare(loops, ask) or base_case(loops, ask, True)
    return found or _grouped(loops, ask, matching=False) or _like_result(loops, ask)


def _like_result(loops: Loops, ask: Ask) -> Choice:
    """Where nothing matches: both operands are laid out as the result is."""
    left, right = ({f: ask.result[f] for f in free if ask.result.get(f)} for free in (loops.left, loops.right))
    return Choice(left=left, right=right, raw=ask.result, made=ask.result)


def _grouped(loops: Loops, ask: Ask, *, matching: bool) -> Choice | None:
    solve: Callable[[Ask], Choice] = lambda inner: choose(loops, inner)  # noqa: E731
    found = (group(loops, ask, matching, solve) for group in _GROUPS)
    return next((choice for choice in found if choice is not None), None)


def _without_spare(loops: Loops, ask: Ask) -> Choice | None:
    """Where both operands are whole, axes that split nothing are no part of the question."""
    asked = frozenset(axes_of(ask.result))
    if axes_of(ask.left) or axes_of(ask.right) or not asked or asked == ask.axes:
        return None
    return choose(loops, Ask(left={}, right={}, result=ask.result, axes=asked, outer=ask.outer))
