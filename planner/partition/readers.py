"""Which products read a value, and how each would have it: those that would have it alike share what it is made so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..graph import Axes, Graph, Op, Sharding
from .looped import PRODUCTS

TRANSPOSE = "transpose"
Wanted = tuple[int, int, Sharding | None]
"""The number of an operation, that of its operand, and the layout that it would have it in; None if that is unknown."""


def readers_of(graph: Graph, layouts: Sequence[Sharding]) -> dict[int, list[Wanted]]:
    """The products that read each value, as it is or transposed, each with the layout that it would have it in."""
    found: dict[int, list[Wanted]] = {}
    for number in range(len(graph.ops) - 1, -1, -1):
        op = graph.ops[number]
        if op.kind in PRODUCTS:
            for operand, (value, layout) in enumerate(zip(op.operands, _wanted(op, layouts), strict=True)):
                found.setdefault(value, []).append((number, operand, layout))
        elif op.kind == TRANSPOSE and op.results[0] in found:
            turned = op.attributes["permutation"]
            found.setdefault(op.operands[0], []).extend(
                (by, operand, None if layout is None else _back(layout, turned))
                for by, operand, layout in found[op.results[0]]
            )
    return found


def shares(readers: Sequence[Wanted], op: Op, operand: int, layouts: Sequence[Sharding]) -> bool:
    """Whether another product than this would have the operand as this would, where that is not how it lies.

    XLA then has all of them share what brings it there, and makes no loop (``check_users_sharding``).
    """
    own, wanted = layouts[op.operands[operand]], tuple(_wanted(op, layouts))[operand]
    others = [layout for _, _, layout in readers]
    if wanted is None or None in others:
        return len(others) > 1
    return wanted != own and others.count(wanted) > 1


def _wanted(op: Op, layouts: Sequence[Sharding]) -> Iterator[Sharding | None]:
    """How a product would have each operand: along its result, and along the other operand where both are summed."""
    factors = op.factors
    if factors is None or op.kind == "convolution":
        yield from [None] * len(op.operands)
        return
    sides = [*zip(factors.operands, op.operands, strict=True), *zip(factors.results, op.results, strict=True)]
    split = [_by_factor(dims, layouts[value]) for dims, value in sides]
    for operand, dims in enumerate(factors.operands):
        others = split[1 - operand] | split[2]
        yield tuple([others.get(factor[0], ()) if factor else () for factor in dims])


def _by_factor(dims: Sequence[Sequence[int]], layout: Sharding) -> dict[int, Axes]:
    return {factor[0]: axes for factor, axes in zip(dims, layout, strict=False) if factor}


def _back(layout: Sharding, permutation: Sequence[int]) -> Sharding:
    return tuple([layout[permutation.index(dim)] for dim in range(len(permutation))])
