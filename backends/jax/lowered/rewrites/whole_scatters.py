"""Scatters over whole dims: what they index is all that there is, so that no index matters."""

from __future__ import annotations

import math
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from .algebra import is_sum
from .rewriter import Rewriter, shape_of, splat_of

NUMBERS = "scatter_dimension_numbers"


def scatter(op: Any, rewriter: Rewriter) -> bool:
    """One update as large as the zeros that it is added to is all that is left of a scatter. Whether it is."""
    if len(op.operands) != 3:
        return False
    zeros, _, updates = op.operands
    numbers = stablehlo.ScatterDimensionNumbers(op.attributes[NUMBERS])
    if splat_of(zeros) != 0 or not is_sum(op) or list(numbers.input_batching_dims):
        return False
    indexed = list(numbers.inserted_window_dims)
    window = [size for i, size in enumerate(shape_of(zeros)) if i not in indexed]
    if any(shape_of(zeros)[i] != 1 for i in indexed):
        return False
    if [shape_of(updates)[i] for i in numbers.update_window_dims] != window:
        return False
    if math.prod(shape_of(updates)) != math.prod(shape_of(zeros)):
        return False
    rewriter.replace(op, rewriter.reshaped(updates, shape_of(zeros), op))
    return True
