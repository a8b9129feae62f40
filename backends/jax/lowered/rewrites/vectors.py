"""Products by a vector for each of a batch: TPUs multiply number by number, and add up, without a matrix product.

XLA does so before it partitions (``AlgebraicSimplifierVisitor::HandleDot``); propagation looks at what is computed
number by number before it looks at products.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from .algebra import ADD, CONVERT, MULTIPLY
from .products import NUMBERS
from .rewriter import Rewriter, shape_of, tensor_type


class _Side(NamedTuple):
    """An operand of a product: its dims of the batch, its own ones, and those that are summed over."""

    value: Any
    batch: list[int]
    own: list[int]
    summed: list[int]

    def sizes(self, dims: Iterable[int]) -> list[int]:
        """The sizes of some of its dims."""
        return [shape_of(self.value)[dim] for dim in dims]

    @property
    def is_vector(self) -> bool:
        """Whether it has no dims of its own but such of size one."""
        return math.prod(self.sizes(self.own)) == 1


def by_vector(op: Any, rewriter: Rewriter) -> None:
    """A product of a batch one of whose operands has no dims of its own, or that adds nothing up, as products of
    numbers. One without a batch stays: a program of the planner's does not yet price its parts as they are written.
    """
    numbers = stablehlo.DotDimensionNumbers(op.attributes[NUMBERS])
    left = _side(op.operands[0], numbers.lhs_batching_dimensions, numbers.lhs_contracting_dimensions)
    right = _side(op.operands[1], numbers.rhs_batching_dimensions, numbers.rhs_contracting_dimensions)
    by_each = left.batch and (left.is_vector or right.is_vector)
    if not (by_each or math.prod(left.sizes(left.summed)) == 1):
        return
    dtype = op.results[0].type.element_type
    outer = [*left.sizes([*left.batch, *left.own]), *right.sizes(right.own)]
    whole = tensor_type([*outer, *left.sizes(left.summed)], dtype)
    batch, own, summed = range(len(left.batch)), range(len(left.batch), len(outer)), range(len(outer), whole.rank)
    first, second = own[: len(left.own)], own[len(left.own) :]
    spread = [
        _spread(side, [*batch, *places, *summed], whole, op, rewriter)
        for side, places in ((left, first), (right, second))
    ]
    made = rewriter.create(MULTIPLY, spread, whole, op, {})
    if left.summed:
        made = _added_up(made, summed, tensor_type(outer, dtype), op, rewriter)
    rewriter.replace(op, made)


def _side(value: Any, batch: Sequence[int], summed: Sequence[int]) -> _Side:
    own = [dim for dim in range(len(shape_of(value))) if dim not in (*batch, *summed)]
    return _Side(value, list(batch), own, list(summed))


def _spread(side: _Side, places: Sequence[int], whole: Any, at: Any, rewriter: Rewriter) -> Any:
    """An operand with its dims in these places of the whole, of its dtype."""
    order = [*side.batch, *side.own, *side.summed]
    value = _converted(side.value, whole.element_type, at, rewriter)
    if order != sorted(order):
        turned = tensor_type(side.sizes(order), whole.element_type)
        value = rewriter.create(
            "stablehlo.transpose", [value], turned, at, {"permutation": ir.DenseI64ArrayAttr.get(order)}
        )
    return value if len(order) == whole.rank else rewriter.broadcast(value, places, whole, at)


def _added_up(value: Any, dims: Sequence[int], kind: Any, at: Any, rewriter: Rewriter) -> Any:
    zero = rewriter.constant(0, kind.element_type, at)
    made = rewriter.create(
        "stablehlo.reduce", [value, zero], kind, at, {"dimensions": ir.DenseI64ArrayAttr.get(list(dims))}, regions=1
    )
    region = made.owner.regions[0]
    block = region.blocks.append(zero.type, zero.type, arg_locs=[at.location, at.location])
    with ir.InsertionPoint(block):
        both = ir.Operation.create(ADD, results=[zero.type], operands=list(block.arguments), loc=ir.Location.unknown())
        ir.Operation.create("stablehlo.return", operands=[both.results[0]], loc=ir.Location.unknown())
    return made


def _converted(value: Any, dtype: Any, at: Any, rewriter: Rewriter) -> Any:
    if value.type.element_type == dtype:
        return value
    return rewriter.create(CONVERT, [value], tensor_type(shape_of(value), dtype), at, {})
