"""Groups of devices that tensors' layouts make, and layouts inside of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...graph import Axes
from ..layout import Mesh, cut_axis, left_over, merged, ways
from .problem import Lookup, Split


class Grouped(NamedTuple):
    """A tensor's split inside groups over the axes ``group``: the ``axes`` of one group in the order of its parts."""

    split: Split
    group: Axes
    axes: Axes


def grouped(split: Split, group: Split, axes: Axes, order: Sequence[int], mesh: Mesh) -> Grouped:
    """A tensor grouped by some of the factors that it is split along."""
    taken = tuple(axis for own in group.values() for axis in own)
    inner = {f: own for f, own in split.items() if own and f not in group}
    return Grouped(inner, taken, _in_order(inner, left_over(axes, taken, mesh), order, mesh))


def borrowed(split: Split, count: int, dims: Sequence[int], axes: Axes, lookup: Lookup) -> Grouped:
    """A tensor in ``count`` groups that have the same of it: copies that there are, else of the first dims that give
    them up; all of it where that does not come out even.
    """
    mesh = lookup.mesh
    used = [axis for own in split.values() for axis in own]
    spare = list(left_over(axes, used, mesh))
    if not used:
        return Grouped({}, (), axes)
    copies = ways(spare, mesh)
    if copies % count == 0:
        taken = _taken(spare, count, mesh)
        return _inside(split, taken, axes, lookup) if taken is not None else Grouped({}, (), axes)
    needed, kept, group = count // copies, dict(split), spare
    for factor in dims:
        own = kept.get(factor, ())
        size = ways(own, mesh)
        if needed % size == 0:
            needed //= size
            group = [*group, *kept.pop(factor, ())]
        elif size % needed == 0:
            taken = _taken(list(own), needed, mesh)
            if taken is None:
                break
            kept[factor] = left_over(own, taken, mesh)
            group, needed = [*group, *taken], 1
        if needed == 1:
            break
    if count % copies or needed != 1 or not kept:
        return Grouped({}, (), axes)
    return _inside(kept, tuple(group), axes, lookup)


def aligned(tensor: Grouped, reference: Grouped, lookup: Lookup) -> dict[int, Axes]:
    """A tensor's split inside the groups of another tensor, part by part where its own are others."""
    if {*tensor.group} == {*reference.group} or not tensor.split:
        return dict(tensor.split)
    names = _renamed(tensor.axes, reference.axes, lookup.mesh)
    return {f: tuple(n for axis in own for n in names[axis]) for f, own in tensor.split.items()} if names else {}


def recounted(
    split: Split, factors: Sequence[int], axes: Axes, lookup: Lookup, counts: Mapping[int, int]
) -> Split | None:
    """A tensor's parts counted anew: its devices in the order of its parts now, dealt out by ``counts`` where given.

    None where an axis would have to be cut unevenly.
    """
    mesh = lookup.mesh
    spare, found = list(_in_order(split, axes, factors, mesh)), dict[int, Axes]()
    for factor in factors:
        count = counts.get(factor, ways(split.get(factor, ()), mesh))
        taken = _leading(spare, count, mesh)
        if taken is None:
            return None
        found[factor] = merged(taken, mesh)
        spare = list(left_over(spare, taken, mesh))
    return {factor: own for factor, own in found.items() if own}


def _leading(axes: list[str], count: int, mesh: Mesh) -> Axes | None:
    """The first axes, which make so many parts, the last one cut if need be."""
    found: list[str] = []
    for axis in axes:
        size = ways((axis,), mesh)
        if count == 1:
            break
        if count % size and size % count:
            return None
        found.append(axis if count % size == 0 else cut_axis(axis, count, mesh)[0])
        count = max(count // size, 1)
    return tuple(found) if count == 1 else None


def _inside(split: Split, group: Axes, axes: Axes, lookup: Lookup) -> Grouped:
    return Grouped(split, group, _in_order(split, left_over(axes, group, lookup.mesh), [*split], lookup.mesh))


def _in_order(split: Split, axes: Axes, order: Sequence[int], mesh: Mesh) -> Axes:
    """Axes as a tensor's parts are counted: dim by dim, then those that split nothing."""
    used = [axis for factor in order for axis in split.get(factor, ())]
    return (*used, *left_over(axes, used, mesh))


def _taken(spare: list[str], count: int, mesh: Mesh) -> Axes | None:
    """The major axes that make so many groups, the last one cut if need be."""
    found: list[str] = []
    for axis in spare:
        size = ways((axis,), mesh)
        if count % size == 0:
            found.append(axis)
            count //= size
        elif size % count == 0:
            found.append(cut_axis(axis, count, mesh)[0])
            count = 1
        if count == 1:
            return tuple(found)
    return None


def _renamed(axes: Axes, others: Axes, mesh: Mesh) -> dict[str, Axes] | None:
    """For each axis the one, or the parts, that stand in its place among others; None where they are cut unevenly."""
    left, found = list(others), dict[str, Axes]()
    for axis in axes:
        size, own = ways((axis,), mesh), list[str]()
        while size > 1 and left:
            other = left.pop(0)
            parts = ways((other,), mesh)
            if parts > size:
                if parts % size:
                    return None
                other, rest = cut_axis(other, size, mesh)
                left.insert(0, rest)
                parts = size
            if size % parts:
                return None
            size //= parts
            own.append(other)
        found[axis] = tuple(own)
    return found
