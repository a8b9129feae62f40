"""Where Shardy reshards a product's result behind it (``processDot`` of ``insert_explicit_reshards.cc``)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain

from .....planner.graph import Factors
from .axes import Axes, Axis
from .rule import Layout, projected, written


def resharded(own: Factors, layouts: Sequence[Layout | None]) -> Layout | None:
    """The layout that a product is made in, to be resharded then, where that is another than its result's: it lies
    along what it adds up, in place of what an operand that is no smaller has. None where it is made as it lies.

    ``layouts`` are those of both operands and the result.
    """
    left, right, result = tensors = [
        projected(dims, layout, own.sizes) for dims, layout in zip((*own.operands, *own.results), layouts, strict=True)
    ]
    counts = [math.prod(own.sizes[factor] for factor in chain.from_iterable(dims)) for dims in own.operands]
    most = math.prod(own.sizes[factor] for factor in chain.from_iterable(own.results[0]))
    wrong: tuple[int, Axes] | None = None
    added, seen = list[Axis](), list[Axis]()
    for factor in range(len(own.sizes)):
        sides = [number for number, tensor in enumerate(tensors[:2]) if factor in tensor]
        axes = tensors[sides[0]][factor].axes if sides else ()
        if len(sides) == 2:
            if left[factor].axes != right[factor].axes:
                return None
            if factor in own.reduction:
                added += axes
                continue
        else:
            if any(_overlap(axis, other) for axis in axes for other in seen):
                return None
            seen += axes
        if result[factor].axes != axes:
            if not axes or wrong is not None or most > max(counts[number] for number in sides):
                return None
            wrong = factor, axes
    if wrong is None or not added or result[wrong[0]].axes != tuple(added):
        return None
    result[wrong[0]].axes = wrong[1]
    return written(own.results[0], result, own.sizes)


def _overlap(one: Axis, other: Axis) -> bool:
    return one.name == other.name and one.before < other.end and other.before < one.end
