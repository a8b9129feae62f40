"""Loop nests of convolutions as the TPU compiler's Shardy has them.

The Shardy of libtpu gives each dim of a window that moves on by one place a factor as large as the window; that of
jaxlib, which propagates here, one of size one. Where two operands would have a result split along different dims, the
larger one decides, and a kernel is as large as its window too (seen in nets whose last kernels are larger than what
they are applied to: gradients of images come out split along features).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir.dialects import sdy

from ....planner.graph import Factors
from .passes import run_passes
from .rewrites.convolutions import CONVOLUTION
from .rewrites.rewriter import shape_of
from .rewrites.simplify import nested
from .shardings import factors

RULES = "func.func(sdy-populate-op-sharding-rules)"
RULE = "sdy.sharding_rule"


def size_windows(module: Any) -> None:
    """Gives the convolutions of a module, in place, loop nests with windows of their size."""
    convolutions = [operation for operation, name in nested(module) if name == CONVOLUTION]
    if convolutions:
        run_passes(RULES, module)
        for operation in convolutions:
            operation.attributes[RULE] = _with_windows(operation)


def _with_windows(operation: Any) -> Any:
    """The rule of a convolution in which factors of size one that one tensor alone has are as large as its dim."""
    rule = sdy.OpShardingRuleAttr(operation.attributes[RULE])
    windows = dict(_windows(operation, factors(rule)))
    return sdy.OpShardingRuleAttr.get(
        [windows.get(factor, size) for factor, size in enumerate(rule.factor_sizes)],
        rule.operand_mappings,
        rule.result_mappings,
        reduction_factors=list(rule.reduction_factors),
        need_replication_factors=list(rule.need_replication_factors),
        permutation_factors=sorted({*rule.permutation_factors, *windows}),
        blocked_propagation_factors=list(rule.blocked_propagation_factors),
        is_custom=True,
    )


def shardys_own(attribute: Any) -> Any:
    """A rule that Shardy takes for its own: it reshards nothing for others."""
    rule = sdy.OpShardingRuleAttr(attribute)
    return sdy.OpShardingRuleAttr.get(
        list(rule.factor_sizes),
        rule.operand_mappings,
        rule.result_mappings,
        reduction_factors=list(rule.reduction_factors),
        need_replication_factors=list(rule.need_replication_factors),
        permutation_factors=list(rule.permutation_factors),
        blocked_propagation_factors=list(rule.blocked_propagation_factors),
    )


def _windows(operation: Any, own: Factors) -> Iterator[tuple[int, int]]:
    """Factors of size one that are a dim of one tensor alone, each with the size of that dim."""
    rows = (*own.operands, *own.results)
    count = Counter(factor for row in rows for dim in row for factor in dim)
    for tensor, row in zip((*operation.operands, *operation.results), rows, strict=True):
        for dim, size in zip(row, shape_of(tensor), strict=True):
            if len(dim) == 1 and count[dim[0]] == 1 and own.sizes[dim[0]] == 1 < size:
                yield dim[0], size
