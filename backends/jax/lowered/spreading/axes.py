"""Axes of a mesh, and parts of them, as Shardy compares them (``AxisRefAttr``, ``dialect.cc``)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

PART = re.compile(r"(.+):\((\d+)\)(\d+)$")


class Axis(NamedTuple):
    """An axis, or the part of it that has ``size`` devices and ``before`` of whose devices are major to it."""

    name: str
    before: int
    size: int

    @property
    def end(self) -> int:
        """The devices of what is major to it, and its own."""
        return self.before * self.size


Axes = tuple[Axis, ...]


def axis_of(name: str, mesh: Mapping[str, int]) -> Axis:
    """An axis by its name, or a part of one (``x:(2)4``)."""
    part = PART.match(name) if name.endswith(tuple("0123456789")) else None
    return Axis(name, 1, mesh[name]) if part is None or name in mesh else Axis(part[1], int(part[2]), int(part[3]))


def name_of(axis: Axis, mesh: Mapping[str, int]) -> str:
    """The name of an axis, or of a part of one."""
    return axis.name if axis.size == mesh[axis.name] else f"{axis.name}:({axis.before}){axis.size}"


def begins(one: Axis, other: Axis) -> bool:
    """Whether one is the major part of the other, or all of it."""
    return one.name == other.name and one.before == other.before and one.size <= other.size


def contains(one: Axis, other: Axis) -> bool:
    """Whether the other is a part of one, or all of it."""
    return one.name == other.name and one.before <= other.before and other.end <= one.end


def joined(axes: Axes, more: Axes) -> Axes:
    """Axes followed by more: where two parts of an axis meet they become one."""
    if axes and more and axes[-1].name == more[0].name and axes[-1].end == more[0].before:
        last = axes[-1]
        return (*axes[:-1], Axis(last.name, last.before, last.size * more[0].size), *more[1:])
    return axes + more


def is_strict_prefix(first: Axes, second: Axes) -> bool:
    """Whether the second list only goes on where the first ends."""
    return first != second and is_prefix(first, second)


def is_prefix(first: Axes, second: Axes) -> bool:
    """Whether the second list begins with the first, whose last axis may be the major part of its own."""
    last = len(first) - 1
    if last < 0:
        return True
    return len(first) <= len(second) and first[:last] == second[:last] and begins(first[last], second[last])


def apart(axis: Axis, others: Iterable[Axis]) -> Axis | None:
    """The major part of an axis that has nothing in common with the others; None if there is none."""
    for other in others:
        if axis.name != other.name:
            continue
        if not _coexist(axis, other):
            return None
        if axis.before < other.end and other.before < axis.end:
            if axis.before >= other.before:
                return None
            axis = Axis(axis.name, axis.before, other.before // axis.before)
    return axis


def _coexist(one: Axis, other: Axis) -> bool:
    """Whether two parts of an axis are parts of one way of cutting it."""
    low, high = sorted((one.before, other.before))
    near, far = sorted((one.end, other.end))
    if near > high:
        return not (near % high or high % low or far % near)
    return high % near == 0
