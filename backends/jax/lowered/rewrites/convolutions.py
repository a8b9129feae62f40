"""Convolutions of kernels the other way round, as those for gradients of images."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from .rewriter import Rewriter, maker

CONVOLUTION = "stablehlo.convolution"
REVERSAL = "window_reversal"


def unreversed(op: Any, _rewriter: Rewriter) -> None:
    """A convolution that reads its kernel the other way round reads the kernel itself, and goes over it from its end:
    the compiler for TPUs has it so before it propagates (``convolution-folding``), and where the kernel lies, the
    convolution reads it.
    """
    reverse = maker(op.operands[1], "stablehlo.reverse")
    if reverse is None:
        return
    said = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    dims, along = set(reverse.attributes["dimensions"]), list(said.kernel_spatial_dimensions)
    if dims <= set(along):
        before = list(op.attributes[REVERSAL]) if REVERSAL in op.attributes else [False] * len(along)
        turned = [was != (dim in dims) for was, dim in zip(before, along, strict=True)]
        op.attributes[REVERSAL] = ir.DenseBoolArrayAttr.get(turned)
        op.operands[1] = reverse.operands[0]
