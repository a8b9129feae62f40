"""The layouts that propagation gives to a step's convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jaxlib.mlir.dialects import stablehlo

from ....planner.convolution_layout import ConvolutionLayout
from ....planner.graph import Axes
from .propagation import propagated
from .shardings import axes_by_dim, sharding_of


def convolution_layouts(lowered: Any) -> list[ConvolutionLayout]:
    """The layouts that propagation gives to the convolutions of a lowered step (``jax.stages.Lowered``)."""
    return layouts_of_module(propagated(lowered))


def layouts_of_module(module: Any) -> list[ConvolutionLayout]:
    """The layouts of the convolutions of a propagated module."""
    with module.context:
        return [_layout(op) for op in _operations(module) if op.operation.name == "stablehlo.convolution"]


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner
                yield from _operations(inner)


def _layout(op: Any) -> ConvolutionLayout:
    said = stablehlo.ConvDimensionNumbers(op.operation.attributes["dimension_numbers"])
    inputs = [said.input_batch_dimension, said.input_feature_dimension, *said.input_spatial_dimensions]
    kernel = [
        said.kernel_output_feature_dimension,
        said.kernel_input_feature_dimension,
        *said.kernel_spatial_dimensions,
    ]
    result = [said.output_batch_dimension, said.output_feature_dimension, *said.output_spatial_dimensions]
    left, right = op.operands
    return ConvolutionLayout(
        inputs=_axes(left, inputs), kernel=_axes(right, kernel), result=_axes(op.results[0], result)
    )


def _axes(value: Any, dims: Sequence[int]) -> tuple[Axes, ...]:
    """The axes of these dims of a value; none where propagation leaves it whole."""
    sharding = sharding_of(value)
    if sharding is None:
        return ((),) * len(dims)
    entries = axes_by_dim(sharding)
    return tuple(entries[dim] for dim in dims)
