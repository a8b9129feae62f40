"""The largest of the last dim: XLA gives propagation the loop nest of its own operation, which JAX's has none of."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir.dialects import sdy

from .rewriter import Rewriter, shape_of


def top_k(op: Any, _: Rewriter) -> None:
    """Says of an operation that all dims but the last, along which it looks, may be split."""
    sizes = list(shape_of(op.operands[0]))
    each = sdy.TensorMappingAttr.get([sdy.DimMappingAttr.get([dim]) for dim in range(len(sizes))])
    last = [len(sizes) - 1]
    op.attributes["sdy.sharding_rule"] = sdy.OpShardingRuleAttr.get(
        sizes, [each], [each, each], need_replication_factors=last, blocked_propagation_factors=last, is_custom=True
    )
