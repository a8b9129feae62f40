"""Parts of axes that views of a step can be split along where the whole axis does not divide them.

Of a dim that a reshape makes of several, or several of, an axis of more devices than the major one has places splits
that with a part of it, and the next with the rest: rows of two copies along eight devices are two by four. A plan
writes the axis, on the dim as a whole, and propagation gives its parts to what it is a view of and all before that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import accumulate, pairwise
from operator import mul

from ...graph import Axes, Factors, Graph, Sharding
from ...partition.layout import ways
from .nest import RESHAPE

Layouts = Mapping[str, Sharding]


def parted(graph: Graph, mesh: Mapping[str, int]) -> Axes:
    """The axes of a mesh, those that views cut as their parts, major first; none where no axis is cut."""
    majors = {places for each, op, _ in graph.walk() if op.kind == RESHAPE for places in _majors(op.factors)}
    found: list[str] = []
    for axis, size in mesh.items():
        cuts = {math.gcd(places, size) for places in majors if places % size} - {1, size}
        chain = [1]  # of cuts that do not divide each other the smaller ones count
        for places in sorted(cuts):
            chain += [places] if places % chain[-1] == 0 else []
        if len(chain) == 1:
            found.append(axis)
        else:
            found += (f"{axis}:({low}){high // low}" for low, high in pairwise([*chain, size]))
    return tuple(found) if len(found) > len(mesh) else ()


def _majors(factors: Factors | None) -> Iterator[int]:
    """How many places the major dims have of those that are viewed as one."""
    if factors is None:
        return
    for dim in (*factors.operands[0], *factors.results[0]):
        sizes = [factors.sizes[factor] for factor in dim if factors.sizes[factor] > 1]
        yield from accumulate(sizes[:-1], mul)


def cut(layout: Sharding, order: Axes) -> Sharding:
    """A layout with parts of axes, as an order has them, in the place of axes."""
    return tuple(tuple(part for axis in axes for part in _parts(axis, order)) for axes in layout)


def is_of_axes(layout: Sharding, order: Axes) -> bool:
    """Whether a layout splits no dim along a part of an axis alone: a plan can write it."""
    return all(cut((uncut(axes),), order)[0] == axes for axes in layout)


def uncut(axes: Axes) -> Axes:
    """Axes with each one in the place of its parts."""
    return tuple(dict.fromkeys(axis.partition(":(")[0] for axis in axes))


def writable(layouts: Layouts, order: Axes) -> dict[str, Sharding]:
    """Of layouts those that a plan can write, as it does."""
    return {path: tuple(map(uncut, each)) for path, each in layouts.items() if is_of_axes(each, order)}


def sizes_of(order: Axes, mesh: Mapping[str, int]) -> dict[str, int]:
    """The axes of a mesh in its order, or the parts that an order has of them, with their sizes."""
    if mesh.keys() >= {*order}:
        return dict(mesh)
    return {part: ways((part,), mesh) for part in order}


def _parts(axis: str, order: Axes) -> Axes:
    return tuple(each for each in order if each == axis or each.startswith(f"{axis}:("))
