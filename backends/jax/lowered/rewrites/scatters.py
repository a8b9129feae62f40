"""One number scattered into each row of zeros: TPUs choose it by comparing places, without a scatter."""

from __future__ import annotations

import math
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from . import whole_scatters
from .rewriter import Rewriter, shape_of, splat_of, tensor_type


def scatter(op: Any, rewriter: Rewriter) -> None:
    """The gradient of picking one number of each row, as a choice between the number and zero."""
    if len(op.operands) != 3 or whole_scatters.scatter(op, rewriter):
        return
    zeros, indices, updates = op.operands
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes["scatter_dimension_numbers"])
    rows = shape_of(zeros)[:-1] if shape_of(zeros) else ()
    along = list(range(len(rows)))
    if splat_of(zeros) != 0 or math.prod(shape_of(updates)) != math.prod(rows) or not rows:
        return
    if list(numbers.input_batching_dims) != along or list(numbers.scatter_indices_batching_dims) != along:
        return
    if list(numbers.update_window_dims) or list(numbers.scattered_dims_to_operand_dims) != [len(rows)]:
        return
    rewriter.replace(op, _chosen(op, rewriter, zeros, rewriter.reshaped(indices, rows, op), updates))


def _chosen(op: Any, rewriter: Rewriter, zeros: Any, place: Any, updates: Any) -> Any:
    shape, along = shape_of(zeros), range(len(shape_of(zeros)) - 1)
    counted = tensor_type(shape, place.type.element_type)
    dim = {"iota_dimension": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(along))}
    places = rewriter.create("stablehlo.iota", [], counted, op, dim)
    wanted = rewriter.broadcast(place, along, counted, op)
    equal = {"comparison_direction": stablehlo.ComparisonDirectionAttr.get("EQ")}
    here = rewriter.create(
        "stablehlo.compare", [wanted, places], tensor_type(shape, ir.IntegerType.get_signless(1)), op, equal
    )
    numbers = rewriter.broadcast(rewriter.reshaped(updates, shape[:-1], op), along, zeros.type, op)
    return rewriter.create("stablehlo.select", [here, numbers, zeros], zeros.type, op, {})
