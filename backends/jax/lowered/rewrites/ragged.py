"""Products of groups of rows, each with a matrix of its own: XLA gives propagation the loop nest of its own operation
(``mhlo.ragged_dot``), which JAX's has none of.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from jaxlib.mlir.dialects import chlo, sdy

from .rewriter import Rewriter, shape_of


def ragged_dot(op: Any, _: Rewriter) -> None:
    """Says of an operation that all dims may be split but those of groups and of their rows: of a step's forward pass
    the rows' own, of the gradient of matrices those that are added up.
    """
    said = chlo.RaggedDotDimensionNumbers(op.attributes["ragged_dot_dimension_numbers"])
    left_shape, right_shape, sizes_shape = (shape_of(operand) for operand in op.operands)
    number, sizes = count(), list[int]()

    def factor(size: int) -> int:
        sizes.append(size)
        return next(number)

    left, right = dict[int, int](), dict[int, int]()
    batches, sums = [], []
    for ours, theirs in zip(said.lhs_batching_dimensions, said.rhs_batching_dimensions, strict=True):
        left[ours] = right[theirs] = factor(left_shape[ours])
        batches.append(left[ours])
    for ours, theirs in zip(said.lhs_contracting_dimensions, said.rhs_contracting_dimensions, strict=True):
        left[ours] = right[theirs] = factor(left_shape[ours])
        sums.append(left[ours])
    rows = [left.setdefault(dim, factor(left_shape[dim])) for dim in range(len(left_shape)) if dim not in left]
    group = factor(sizes_shape[-1])
    right |= dict.fromkeys(said.rhs_group_dimensions, group)
    columns = [right.setdefault(dim, factor(right_shape[dim])) for dim in range(len(right_shape)) if dim not in right]
    (ragged,) = (left[dim] for dim in said.lhs_ragged_dimensions)
    made = [*([] if said.rhs_group_dimensions or ragged in batches else [group]), *batches, *rows, *columns]
    before = [each for each in (*batches, *(sums if ragged in sums else rows)) if each != ragged]
    outer = before[: len(sizes_shape) - 1]
    op.attributes["sdy.sharding_rule"] = sdy.OpShardingRuleAttr.get(
        sizes,
        [
            _mapping([left[dim] for dim in range(len(left_shape))]),
            _mapping([right[dim] for dim in range(len(right_shape))]),
            _mapping([*outer, group]),
        ],
        [_mapping(made)],
        reduction_factors=[each for each in sums if each != ragged],
        need_replication_factors=sorted((ragged, group)),
        is_custom=True,
    )


def _mapping(factors: list[int]) -> Any:
    return sdy.TensorMappingAttr.get([sdy.DimMappingAttr.get([each]) for each in factors])
