"""Convolutions of kernels the other way round, as those for gradients of images."""

from __future__ import annotations

from typing import Any

from jaxlib.mlir.dialects import stablehlo

from .rewriter import Rewriter, maker

CONVOLUTION = "stablehlo.convolution"


def unreversed(op: Any, _rewriter: Rewriter) -> None:
    """A convolution that reads its kernel the other way round reads the kernel itself, and goes over it from its end:
    the compiler for TPUs has it so before it propagates (``convolution-folding``), and where the kernel lies, the
    convolution reads it. From which end it goes over it says nothing of layouts, nor of what it takes.
    """
    reverse = maker(op.operands[1], "stablehlo.reverse")
    if reverse is None:
        return
    said = stablehlo.ConvDimensionNumbers(op.attributes["dimension_numbers"])
    if set(reverse.attributes["dimensions"]) <= set(said.kernel_spatial_dimensions):
        op.operands[1] = reverse.operands[0]
