"""What one operation tells its tensors: Shardy's factors, split as its tensors are, and its tensors, as factors are.

Follows ``sharding_projection.cc``, ``basic_factor_propagation.cc`` and ``aggressive_factor_propagation.cc``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .....dsl.records import record
from .....planner.graph import Factors
from .axes import Axes, Axis, apart, begins, contains, is_prefix, is_strict_prefix, joined

NONE, FORWARD, BACKWARD, BOTH = range(4)

Dim = tuple[Axes, bool]
Layout = tuple[Dim, ...]
"""Of each dim its axes, and whether it is closed: not to be split any further."""


@dataclass(slots=True)
class Split:
    """How a factor of a tensor is split. ``is_last`` of its dim; ``over`` are axes that do not divide it."""

    axes: Axes = ()
    closed: bool = False
    is_last: bool = False
    over: Axes = ()


@record(frozen=True, slots=True, kw_only=True)
class Rule:
    """An operation's ``factors``; ``elementwise`` says that Shardy counts it as working number by number."""

    factors: Factors
    elementwise: bool

    def spread(self, directions: Sequence[int], layouts: Sequence[Layout | None]) -> list[Layout | None] | None:
        """The layouts of operands and results once each factor is propagated in its direction; None if none changes.

        ``layouts`` are those before; None of a tensor of which nothing is said.
        """
        sizes, rows = self.factors.sizes, (*self.factors.operands, *self.factors.results)
        count = len(self.factors.operands)
        tensors = [projected(row, layout, sizes) for row, layout in zip(rows, layouts, strict=True)]
        wanted = [_compatible(tensors, count, factor, direction) for factor, direction in enumerate(directions)]
        if not any(wanted):
            return None
        order = self._order(tensors, wanted)
        changed = set[int]()
        for number in (*range(count, len(tensors)), *range(count)):
            for factor in order:
                axes = _fitting(tensors[number], factor, wanted[factor], sizes[factor])
                if axes and number < count and self.elementwise:
                    axes = _held_back(tensors[count:], factor, axes)
                if axes and is_strict_prefix(tensors[number][factor].axes, axes):
                    tensors[number][factor].axes = axes
                    changed.add(number)
        found = list(layouts)
        for number in changed:
            found[number] = written(rows[number], tensors[number], sizes)
            if layouts[number] is None and not any(axes for axes, _ in found[number] or ()):
                found[number] = None
        return found if found != list(layouts) else None

    def _order(self, tensors: Sequence[Mapping[int, Split]], wanted: Sequence[Axes]) -> list[int]:
        """The factors, those first that come from the largest tensors."""
        sizes = self.factors.sizes
        source = [(-1, -1)] * len(sizes)
        for number, tensor in enumerate(tensors):
            size = math.prod(sizes[factor] for factor in tensor)
            for factor, split in tensor.items():
                if wanted[factor] and size > source[factor][0] and is_prefix(wanted[factor], split.axes):
                    source[factor] = size, number
        ways = [math.prod(axis.size for axis in axes) if self.elementwise else 0 for axes in wanted]
        return sorted(range(len(sizes)), key=lambda f: (-source[f][0], -ways[f], source[f][1], f))


def projected(dims: Sequence[Sequence[int]], layout: Layout | None, sizes: Sequence[int]) -> dict[int, Split]:
    """How the factors of a tensor are split where its dims are split so."""
    found: dict[int, Split] = {}
    for factors, (axes, closed) in zip(dims, layout or (((), False),) * len(dims), strict=True):
        left, is_over = list(axes), False
        for factor in factors:
            split = found[factor] = Split(is_last=factor == factors[-1])
            if is_over:
                split.closed = True
                break
            split.closed = closed
            if split.is_last:
                split.axes = _merged(left)
                break
            split.axes, size = _taken(left, sizes[factor])
            if size > 1 and left:
                is_over, split.over = True, _merged(left)
    return found


def _taken(left: list[Axis], size: int) -> tuple[Axes, int]:
    """The axes, taken from those ``left``, that a factor of this size is split over, and what of it is whole."""
    taken = []
    while left:
        axis = left[0]
        common = math.gcd(size, axis.size)
        if axis.size != 1 and common == 1:
            break
        if axis.size > common:
            taken.append(Axis(axis.name, axis.before, common))
            left[0] = Axis(axis.name, axis.before * common, axis.size // common)
            size //= common
        else:
            taken.append(left.pop(0))
            size //= axis.size
    return tuple(taken), size


def _merged(axes: Sequence[Axis]) -> Axes:
    found: Axes = ()
    for axis in axes:
        found = joined(found, (axis,))
    return found


def _compatible(tensors: Sequence[Mapping[int, Split]], operands: int, factor: int, direction: int) -> Axes:
    """The axes that all tensors agree to split a factor over, those in whose direction it goes not asked."""
    if direction == NONE:
        return ()
    sides = (tensors[:operands], tensors[operands:])
    first, second = sides if direction != BACKWARD else sides[::-1]
    axes, grows = _agreed((), first, factor, grows=True)
    return _agreed(axes, second, factor, grows=grows and direction == BOTH)[0]


def _agreed(axes: Axes, tensors: Sequence[Mapping[int, Split]], factor: int, *, grows: bool) -> tuple[Axes, bool]:
    for tensor in tensors:
        split = tensor.get(factor)
        if split is not None:
            axes, grows = _both(axes, split.axes, grows=grows)
    return axes, grows


def _both(old: Axes, new: Axes, *, grows: bool) -> tuple[Axes, bool]:
    """What two lists have in common, then what one goes on with; and whether that may go on."""
    found: list[Axis] = []
    for at, (one, other) in enumerate(zip(old, new, strict=False)):
        if one == other:
            found.append(one)
        elif begins(other, one):
            if at + 1 < len(new):
                return (*found, other), False
            found.append(one)
        elif begins(one, other):
            if not grows or at + 1 < len(old):
                return (*found, one), False
            found.append(other)
        else:
            return tuple(found), False
    found += old[len(new) :]
    if grows:
        found += new[len(old) :]
    return tuple(found), grows


def _fitting(tensor: Mapping[int, Split], factor: int, axes: Axes, size: int) -> Axes:
    """What of the axes a tensor's factor can be split over; nothing if that is no more than it is."""
    split = tensor.get(factor)
    if split is None or not axes:
        return ()
    found, before = list[Axis](), 1
    for axis in axes:
        fits = _within(axis, split, before, size)
        if fits is not None:
            found.append(fits)
        if fits != axis:
            break
        before *= axis.size
    if not is_strict_prefix(split.axes, tuple(found)):
        return ()
    others = [o for number, other in tensor.items() if number != factor for o in (*other.over, *other.axes)]
    kept = list[Axis]()
    for axis in found:
        free = apart(axis, others)
        if free is not None:
            kept.append(free)
        if free != axis:
            break
    return tuple(kept)


def _within(axis: Axis, split: Split, before: int, size: int) -> Axis | None:
    """What of an axis a factor can be split over that is split over ``before`` already."""
    if any(contains(each, axis) for each in split.axes):
        return axis
    if not split.closed and not split.over:
        if split.is_last:
            return axis
        if size % before == 0:
            common = math.gcd(size // before, axis.size)
            if common == axis.size:
                return axis
            if common != 1:
                return Axis(axis.name, axis.before, common)
    return split.axes[-1] if split.axes and begins(split.axes[-1], axis) else None


def _held_back(results: Sequence[Mapping[int, Split]], factor: int, axes: Axes) -> Axes:
    """What goes to another operand through a result: no more than that is split over."""
    for result in results:
        if factor in result and is_strict_prefix(result[factor].axes, axes):
            axes = result[factor].axes
    return axes


def written(dims: Sequence[Sequence[int]], tensor: Mapping[int, Split], sizes: Sequence[int]) -> Layout:
    """How the dims of a tensor are split where its factors are split so."""
    found = list[Dim]()
    for factors in dims:
        axes: Axes = ()
        closed = False
        for factor in factors:
            split = tensor[factor]
            closed |= split.closed
            axes = joined(axes, split.axes)
            if split.over:
                axes = joined(axes, split.over)
                break
            if math.prod(axis.size for axis in split.axes) < sizes[factor]:
                break
        found.append((axes, closed))
    return tuple(found)
