"""Which foldings are tried first: those whose axes lie on whole dims, in sizes that the step's tensors divide by."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from ...dsl.tensors import Tensor
from ..links import OUTER
from ..topology import Machine
from .meshes import Folding

BROKEN_DIM, MIXED_NETWORKS = 0.25, 0.5


def by_promise(foldings: Sequence[Folding], machine: Machine, tensors: Sequence[Tensor], limit: int) -> list[Folding]:
    """The ``limit`` most promising foldings, in order: each is the one that adds most to those before it.

    A folding offers the sizes that groups of its axes have. A size is worth the bytes of the tensors that can be split
    so many ways, half as much each time that an earlier folding offered it; a folding is worth less for every dim that
    its axes break, and for axes that join a fast network with a slow one.
    """
    worth = _worth(tensors, machine.num_devices)
    sizes = {folding: _group_sizes(folding.sizes) for folding in foldings}
    quality = {folding: _quality(folding, machine) for folding in foldings}
    offered: Counter[int] = Counter()
    chosen: list[Folding] = []
    left = list(foldings)
    while left and len(chosen) < limit:
        gains = [quality[f] * sum(worth[s] / 2 ** offered[s] for s in sizes[f]) for f in left]
        best = left.pop(max(range(len(left)), key=lambda i: (gains[i], quality[left[i]], -i)))
        chosen.append(best)
        offered.update(sizes[best])
    return chosen


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


def _quality(folding: Folding, machine: Machine) -> float:
    """1 for axes that each take whole dims of one network."""
    whole = dict(machine.dims)
    broken = sum(1 for axis in folding.axes for part in axis if part.size < whole[part.dim])
    mixed = sum(1 for axis in folding.axes if 0 < len(list(_outer(axis))) < len(axis))
    return 1 / (1 + BROKEN_DIM * broken + MIXED_NETWORKS * mixed)


def _outer(axis: Sequence[object]) -> Iterator[object]:
    return (part for part in axis if getattr(part, "dim", None) in OUTER)
