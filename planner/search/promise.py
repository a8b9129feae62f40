"""Which meshes are tried first: those whose axes lie on whole dims, in sizes that the step's tensors divide by."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

from ...dsl.plan import Mesh
from ...dsl.tensors import Tensor
from ..links import OUTER
from ..topology import Machine

BROKEN_DIM, MIXED_NETWORKS = 0.25, 0.5


def by_promise(
    meshes: Sequence[Mesh], machine: Machine, tensors: Sequence[Tensor], limit: int, before: Sequence[Mesh] = ()
) -> list[Mesh]:
    """The ``limit`` most promising meshes, in order: each is the one that adds most to those ``before`` it.

    A mesh offers the sizes that groups of its axes have. A size is worth the bytes of the tensors that can be split so
    many ways, half as much each time that an earlier mesh offered it; a mesh is worth less for every dim that its axes
    break, and for axes that join a fast network with a slow one.
    """
    worth = _worth(tensors, machine.num_devices)
    sizes = [_group_sizes(_sizes(mesh)) for mesh in meshes]
    quality = [_quality(mesh) for mesh in meshes]
    offered = Counter(size for mesh in before for size in _group_sizes(_sizes(mesh)))
    left = list(range(len(meshes)))
    chosen: list[Mesh] = []
    while left and len(chosen) < limit:
        gains = {i: quality[i] * sum(worth[s] / 2 ** offered[s] for s in sizes[i]) for i in left}
        best = max(left, key=lambda i: (gains[i], quality[i], -i))
        left.remove(best)
        chosen.append(meshes[best])
        offered.update(sizes[best])
    return chosen


def by_axes(
    meshes: Sequence[Mesh], machine: Machine, tensors: Sequence[Tensor], limit: int, inner: Collection[str] = ()
) -> list[Mesh]:
    """The ``limit`` most promising of meshes whose axes have names already, in order.

    First come those on which no axis of ``inner``, which split what is joined in every step, crosses the slow network.
    Of these and of the rest those of few axes come first, each kind of which takes a fraction of the time of the next.
    Where not all can be tried a kind has half of the places that are left, the last one all.
    """
    kinds: dict[tuple[bool, int], list[Mesh]] = {}
    for mesh in meshes:
        axes = mesh.axes or ()
        crosses = any(axis.name in inner and any(part.name in OUTER for part in axis.over or ()) for axis in axes)
        kinds.setdefault((crosses, len(axes)), []).append(mesh)
    chosen: list[Mesh] = []
    left = len(meshes)
    for kind in sorted(kinds):
        room = limit - len(chosen)
        most = room if left <= room or left == len(kinds[kind]) else max(room // 2, min(room, 1))
        chosen += by_promise(kinds[kind], machine, tensors, most, chosen)
        left -= len(kinds[kind])
    return chosen


def _sizes(mesh: Mesh) -> list[int]:
    return [size or 1 for size in mesh.sizes.values()]


def _group_sizes(sizes: Sequence[int]) -> frozenset[int]:
    """How many devices groups along some of the axes have."""
    several = (chosen for count in range(1, len(sizes) + 1) for chosen in combinations(sizes, count))
    return frozenset(math.prod(chosen) for chosen in several)


def _worth(tensors: Sequence[Tensor], devices: int) -> Mapping[int, float]:
    """For each divisor of ``devices`` the share of all bytes in tensors with a dim that it divides."""
    divisors = [size for size in range(1, devices + 1) if devices % size == 0]
    total = sum(tensor.num_bytes for tensor in tensors) or 1
    by_shape: Counter[tuple[int, ...]] = Counter()
    for tensor in tensors:
        by_shape[tensor.shape] += tensor.num_bytes
    return {
        size: sum(b for shape, b in by_shape.items() if any(dim % size == 0 for dim in shape)) / total
        for size in divisors
    }


def _quality(mesh: Mesh) -> float:
    """1 for axes that each take whole dims of one network."""
    taken = [axis.over or () for axis in mesh.axes or ()]
    broken = sum(1 for over in taken for part in over if part.size is not None)
    mixed = sum(1 for over in taken if 0 < sum(part.name in OUTER for part in over) < len(over))
    return 1 / (1 + BROKEN_DIM * broken + MIXED_NETWORKS * mixed)
