"""What a step takes at least on a mesh of given sizes, whatever its layouts: worked out in milliseconds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from ...dsl.tensors import Tensor
from ..chip import Chip, Precision
from ..compute.speed import CPU_FLOPS_PER_S
from ..estimate.roofline import matrix_flops, product_precision
from ..graph import Graph, Op, Sharding

FLOPS_OF_ONE = 2
"""Of each number of a product, for each pair that it sums up."""


@dataclass(frozen=True, slots=True)
class Products:
    """The FLOPs of a step's matrix products, by dtype and precision and by the sizes that they can be split along. What
    sums nothing is none: that is multiplied number by number, in passing.
    """

    flops: Mapping[tuple[str, Precision, tuple[int, ...] | None], int]

    @classmethod
    def of(cls, graph: Graph) -> Products:
        """Those of a step before it is laid out."""
        found: Counter[tuple[str, Precision, tuple[int, ...] | None]] = Counter()
        for inner, op, times in graph.walk():
            flops = matrix_flops(inner, op)
            if flops > FLOPS_OF_ONE * sum(inner.values[value].num_elements for value in op.results):
                dtype = inner.values[op.operands[0]].dtype
                found[dtype, product_precision(op), _splittable(op)] += flops * times * op.origin.repeats
        return cls(dict(found))

    def seconds(self, sizes: Sequence[int], chip: Chip) -> float:
        """Seconds of one device at its matrix units' peak, each product split as far as the axes divide it."""
        axes = tuple(sorted(sizes))
        devices = math.prod(axes)
        return self._seconds(chip, lambda factors: devices if factors is None else most_ways(factors, axes))

    def even_seconds(self, devices: int, chip: Chip) -> float:
        """The same on whatever mesh of so many devices: each product split evenly over all of them."""
        return self._seconds(chip, lambda factors: devices)

    def _seconds(self, chip: Chip, ways: Callable[[tuple[int, ...] | None], int]) -> float:
        total_s = 0.0
        for (dtype, precision, factors), flops in self.flops.items():
            peak = chip.peak_flops_per_s(dtype, precision) or chip.peak_flops_per_s("bfloat16") or CPU_FLOPS_PER_S
            total_s += flops / ways(factors) / peak
        return total_s


def least_argument_bytes(tensors: Sequence[Tensor], sizes: Mapping[str, int], pins: Mapping[str, Sharding]) -> int:
    """Bytes of one device that the step's arguments take at least on a mesh; those in ``pins`` lie as they say."""
    arguments = (tensor for tensor in tensors if tensor.role == "argument")
    return sum(_least(one.num_bytes, one.shape, pins.get(one.path), sizes) for one in arguments)


def least_result_bytes(graph: Graph, sizes: Mapping[str, int], pins: Mapping[str, Sharding]) -> int:
    """The same of the results that a step makes, but for those that lie where donated arguments did."""
    made = {value for op in graph.ops for value in op.results}
    names = dict(enumerate(graph.result_names))
    left = {
        value: names.get(position, "")
        for position, value in enumerate(graph.results)
        if value in made and position not in graph.aliases
    }
    several = ((graph.values[value], pins.get(name)) for value, name in left.items())
    return sum(_least(value.num_bytes, value.shape, pinned, sizes) for value, pinned in several)


def _least(num_bytes: int, shape: tuple[int, ...], pinned: Sharding | None, sizes: Mapping[str, int]) -> int:
    """What one device holds of a tensor at least."""
    if pinned is not None:
        return -(-num_bytes // math.prod(sizes[axis] for dim in pinned for axis in dim))
    return -(-num_bytes // most_ways(tuple(sorted(shape)), tuple(sorted(sizes.values()))))


@cache
def most_ways(factors: tuple[int, ...], axes: tuple[int, ...]) -> int:
    """Into how many parts axes of these sizes can split something with factors of these sizes, each dividing."""
    best = 1
    for homes in product(range(-1, len(factors)), repeat=len(axes)):
        parts = [math.prod(a for a, home in zip(axes, homes, strict=True) if home == i) for i in range(len(factors))]
        if all(factor % part == 0 for factor, part in zip(factors, parts, strict=True)):
            best = max(best, math.prod(parts))
    return best


def _splittable(op: Op) -> tuple[int, ...] | None:
    """The sizes of the factors of a product that may be split; None where they are not known."""
    if op.factors is None:
        return None
    kept = set(op.factors.replicated)
    return tuple(sorted(size for i, size in enumerate(op.factors.sizes) if i not in kept))
