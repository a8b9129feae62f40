"""Layouts as the partitioner reads them: how many ways a dim is split, and what of a tensor one device holds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..graph import Axes, Sharding

Mesh = Mapping[str, int]


def ways(axes: Iterable[str], mesh: Mesh) -> int:
    """Into how many parts these axes split; of ``x:(2)4``, a part of an axis that the mesh has whole, four."""
    parts = 1
    for axis in axes:
        parts *= mesh[axis] if axis in mesh else int(axis.rpartition(")")[2])
    return parts


def halves(axis: str, major: int, mesh: Mesh) -> tuple[str, str]:
    """An axis as its major part, of this size, and the rest."""
    return f"{axis}:(1){major}", f"{axis}:({major}){mesh[axis] // major}"


def cut_axis(axis: str, major: int, mesh: Mesh) -> tuple[str, str]:
    """An axis, or a part of one, as its major part of this size and the rest."""
    name, begin, end = _part(axis, mesh)
    return f"{name}:({begin}){major}", f"{name}:({begin * major}){end // begin // major}"


def merged(axes: Iterable[str], mesh: Mesh) -> Axes:
    """The axes of a dim, parts that follow each other in one axis as the part, or the axis, that they make up."""
    found: list[str] = []
    for axis in axes:
        name, begin, end = _part(axis, mesh)
        before = _part(found[-1], mesh) if found else ("", 0, 0)
        if before[0] == name and before[2] == begin:
            begin, axis = before[1], f"{name}:({before[1]}){end // before[1]}"
            found[-1] = name if (begin, end) == (1, mesh.get(name)) else axis
        else:
            found.append(axis)
    return tuple(found)


def left_over(axes: Iterable[str], taken: Iterable[str], mesh: Mesh) -> Axes:
    """The axes, and the parts of them, that none of the others has."""
    others = sorted(_part(axis, mesh) for axis in taken)
    found: list[str] = []
    for axis in axes:
        name, begin, end = _part(axis, mesh)
        gone = [(max(first, begin), min(last, end)) for other, first, last in others if other == name]
        for first, last in (*((f, e) for f, e in gone if f < e), (end, end)):
            if first > begin:
                own = (begin, first) == _part(axis, mesh)[1:]
                found.append(axis if own else f"{name}:({begin}){first // begin}")
            begin = max(begin, last)
    return tuple(found)


def extends(layout: Sharding, other: Sharding) -> bool:
    """Whether a layout splits further what another splits."""
    return all(own[: len(given)] == given for own, given in zip(layout, other, strict=True))


def overlap(axes: Iterable[str], others: Iterable[str], mesh: Mesh) -> bool:
    """Whether an axis, or a part of one, is among the others too, whole or in part."""
    parts = [_part(axis, mesh) for axis in others]
    own = (_part(axis, mesh) for axis in axes)
    return any(a == b and max(first, begin) < min(last, end) for a, first, last in own for b, begin, end in parts)


def _part(axis: str, mesh: Mesh) -> tuple[str, int, int]:
    """An axis, or a part of one, as its name and how many parts are major to it, and with it."""
    if axis in mesh:
        return axis, 1, mesh[axis]
    name, _, given = axis.rpartition(":(")
    before, _, size = given.partition(")")
    return name, int(before), int(before) * int(size)


def named(axes: Iterable[str], mesh: Mesh) -> Axes:
    """The mesh's own axes that these are, or are parts of."""
    return tuple(dict.fromkeys(axis if axis in mesh else axis.rpartition(":(")[0] or axis for axis in axes))


def whole(rank: int) -> Sharding:
    """The layout of a tensor that every device holds whole."""
    return ((),) * rank


def stated(sharding: Sharding | None, rank: int, mesh: Mesh) -> Sharding:
    """A layout with nothing left open: what is not said is whole, and axes of one device are left out."""
    if sharding is None:
        return ((),) * rank
    if all(mesh[axis] > 1 for axes in sharding for axis in axes):
        return sharding
    return tuple(tuple(axis for axis in axes if mesh[axis] > 1) for axes in sharding)


def used(sharding: Sharding) -> Axes:
    """All axes that split some dim."""
    return tuple([axis for axes in sharding for axis in axes])


def local_shape(shape: Sequence[int], sharding: Sharding, mesh: Mesh) -> tuple[int, ...]:
    """What one device holds: each dim divided by its parts, rounded up as the compiler pads."""
    return tuple([-(-size // ways(axes, mesh)) if axes else size for size, axes in zip(shape, sharding, strict=True)])


def is_even(shape: Sequence[int], sharding: Sharding, mesh: Mesh) -> bool:
    """Whether each dim divides into its parts."""
    return all(size % ways(axes, mesh) == 0 for size, axes in zip(shape, sharding, strict=True))


def without(sharding: Sharding, gone: Iterable[str]) -> Sharding:
    """The layout with these axes splitting nothing."""
    drop = frozenset(gone)
    return tuple(tuple(axis for axis in axes if axis not in drop) for axes in sharding)


def common_prefix(left: Axes, right: Axes) -> int:
    """How many major axes two dims share."""
    count = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        count += 1
    return count
