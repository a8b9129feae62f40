"""Functions that XLA writes out before it propagates layouts: JAX's own operations have no loop nest to Shardy."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir.dialects import sdy

from .rewriter import Rewriter, shape_of

EXPANDED = tuple(
    f"chlo.{name}"
    for name in """
    acos acosh asin asinh atan atanh bessel_i1e cosh digamma erf erf_inv erfc lgamma next_after polygamma sinh square
    tan zeta
    """.split()  # noqa: SIM905
)


def number_by_number(op: Any, _: Rewriter) -> None:
    """Says of an operation that it makes each number of those at its place, as what XLA makes of it does (seen of all
    of these on v5e: what is given to them is split as their result is).
    """
    sizes = list(shape_of(op.results[0]))
    each = sdy.TensorMappingAttr.get([sdy.DimMappingAttr.get([dim]) for dim in range(len(sizes))])
    op.attributes["sdy.sharding_rule"] = sdy.OpShardingRuleAttr.get(sizes, [each] * len(op.operands), [each])
