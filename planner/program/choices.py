"""The choices of a kernel: which loop each axis of the mesh splits, and how what is added up is laid out after that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from ..graph import Sharding
from .nest import Nest


@dataclass(frozen=True, slots=True)
class Split:
    """What one axis splits: a loop, and after it is added up another (None: every device has the sum)."""

    loop: int | None = None
    then: int | None = None


Choice = tuple[Split, ...]  # by axis of the mesh


def choices(nest: Nest, mesh: Mapping[str, int]) -> Iterator[tuple[Choice, dict[int, Sharding]]]:
    """Every legal choice with the layouts of all of the kernel's values."""
    axes = [axis for axis, size in mesh.items() if size > 1]
    options = [list(_splits(nest, mesh[axis])) for axis in axes]
    for picked in product(*options):
        if not _divide(nest, picked, [mesh[axis] for axis in axes]):
            continue
        layouts = _layouts(nest, axes, picked, mesh)
        if layouts is not None:
            yield picked, layouts


def _splits(nest: Nest, size: int) -> Iterator[Split]:
    """What an axis of this size may split."""
    yield Split()
    loops = [n for n, own in enumerate(nest.sizes) if not nest.blocked[n] and own % size == 0]
    for loop in loops:
        yield Split(loop)
        for then in loops if loop in nest.sums else ():
            if then != loop and _is_after(nest, loop, then):
                yield Split(loop, then)


def _is_after(nest: Nest, loop: int, then: int) -> bool:
    """Whether what is added up over ``loop`` has the other."""
    for value in nest.sums[loop]:
        own = {n for dim in nest.dims[value] for n in dim}
        if then in own and loop not in own:
            return True
    return False


def _divide(nest: Nest, picked: Sequence[Split], sizes: Sequence[int]) -> bool:
    """Whether every loop is divided by the axes that split it, before and after sums alike."""
    ways: dict[int, int] = {}
    for split, size in zip(picked, sizes, strict=True):
        for loop in {split.loop, split.then} - {None}:
            ways[loop] = ways.get(loop, 1) * size  # type: ignore[index,arg-type]
    return all(nest.sizes[loop] % count == 0 for loop, count in ways.items())


def _layouts(
    nest: Nest, axes: Sequence[str], picked: Sequence[Split], mesh: Mapping[str, int]
) -> dict[int, Sharding] | None:
    """The layouts of all values under a choice; None where one of them cannot be laid out so."""
    found: dict[int, Sharding] = {}
    for value, dims in nest.dims.items():
        of_loop: dict[int, list[str]] = {}
        loops = [loop for dim in dims for loop in dim]
        own = set(loops)
        for axis, split in zip(axes, picked, strict=True):
            loop = split.loop
            if loop is not None and loop not in own:
                loop = split.then if split.then in own and value in nest.sums[loop] else None
            if loop is not None and loops.count(loop) > 1:
                return None  # two dims go along one loop, and no axis splits both
            if loop is not None:
                of_loop.setdefault(loop, []).append(axis)
        layout = _layout(nest, dims, of_loop, mesh)
        if layout is None:
            return None
        found[value] = layout
    return found


def _layout(
    nest: Nest, dims: Sequence[tuple[int, ...]], of_loop: Mapping[int, Sequence[str]], mesh: Mapping[str, int]
) -> Sharding | None:
    layout = []
    for loops in dims:
        axes: list[str] = []
        full = True
        for loop in loops:
            mine = of_loop.get(loop, ())
            if mine and not full:
                return None
            axes += mine
            ways = 1
            for axis in mine:
                ways *= mesh[axis]
            full = full and ways == nest.sizes[loop]
        layout.append(tuple(axes))
    return tuple(layout)
