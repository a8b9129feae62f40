"""Transposed matrix products as products of the operands the other way round."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from .....planner.partition.passes.scatters import EXCHANGED
from ..value_names import reading
from .rewriter import Rewriter, is_used_once, maker, shape_of

DOT = "stablehlo.dot_general"
NUMBERS = "dot_dimension_numbers"


def transpose(op: Any, rewriter: Rewriter) -> None:
    """The transpose of a product that only exchanges the dims of its operands is the product of them exchanged."""
    dot = maker(op.operands[0], DOT)
    if dot is None or not is_used_once(op.operands[0]):
        return
    numbers = stablehlo.DotDimensionNumbers(dot.attributes[NUMBERS])
    left, right = dot.operands
    batch = len(numbers.lhs_batching_dimensions)
    free = len(shape_of(left)) - batch - len(numbers.lhs_contracting_dimensions)
    rank = len(shape_of(op.results[0]))
    if list(op.attributes["permutation"]) != [*range(batch), *range(batch + free, rank), *range(batch, batch + free)]:
        return
    rewriter.replace(op, rewriter.create(DOT, [right, left], op.results[0].type, dot, _exchanged(dot, numbers)))


def _exchanged(dot: Any, numbers: Any) -> dict[str, Any]:
    attributes = dict(dot.attributes.items()) | reading([(dot, 1), (dot, 0)])
    attributes[NUMBERS] = stablehlo.DotDimensionNumbers.get(
        lhs_batching_dimensions=list(numbers.rhs_batching_dimensions),
        rhs_batching_dimensions=list(numbers.lhs_batching_dimensions),
        lhs_contracting_dimensions=list(numbers.rhs_contracting_dimensions),
        rhs_contracting_dimensions=list(numbers.lhs_contracting_dimensions),
    )
    if "precision_config" in attributes:
        attributes["precision_config"] = ir.ArrayAttr.get(list(attributes["precision_config"])[::-1])
    if attributes.pop(EXCHANGED, None) is None:
        attributes[EXCHANGED] = ir.UnitAttr.get()
    return attributes
