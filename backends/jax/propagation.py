"""What Shardy's propagation makes of a lowered step, before anything is compiled: the layouts of its convolutions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import sdy, stablehlo

Axes = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionLayout:
    """The axes of each dim of a convolution's operands and result.

    ``inputs`` and ``result`` have batch, feature, then the window's dims; ``kernel`` outputs, features, window's dims.
    """

    inputs: tuple[Axes, ...]
    kernel: tuple[Axes, ...]
    result: tuple[Axes, ...]


def convolution_layouts(lowered: Any) -> list[ConvolutionLayout]:
    """The layouts that propagation gives to the convolutions of a lowered step (``jax.stages.Lowered``)."""
    module = lowered.compiler_ir("stablehlo").operation
    with module.context:
        copy = module.clone()  # JAX keeps the original to compile
        passmanager.PassManager.parse("builtin.module(sdy-propagation-pipeline)").run(copy)
        return [_layout(op) for op in _operations(copy) if op.operation.name == "stablehlo.convolution"]


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
    sharding = _sharding(value)
    if sharding is None:
        return ((),) * len(dims)
    entries = [sdy.DimensionShardingAttr(entry) for entry in sdy.TensorShardingAttr(sharding).dimension_shardings]
    return tuple(tuple(_name(axis) for axis in entries[dim].axes) for dim in dims)


def _name(axis: Any) -> str:
    axis = sdy.AxisRefAttr(axis)
    return axis.name if axis.sub_axis_info is None else str(axis)


def _sharding(value: Any) -> Any:
    """The sharding attribute of a result, an argument of a function, or an element of a loop's state; else None."""
    if not isinstance(value.owner, ir.Block):
        owner, number = value.owner.operation, value.result_number
        return owner.attributes["sharding"] if owner.name == "sdy.reshard" else _of_result(owner, number)
    owner, number = value.owner.owner.operation, value.arg_number
    if owner.name == "func.func":
        return _of_parameter(owner, number)
    return _of_result(owner, number) if owner.name == "stablehlo.while" else None


def _of_parameter(function: Any, number: int) -> Any:
    if "arg_attrs" not in function.attributes:
        return None
    attributes = function.attributes["arg_attrs"][number]
    return attributes["sdy.sharding"] if "sdy.sharding" in attributes else None  # noqa: SIM401


def _of_result(operation: Any, number: int) -> Any:
    if "sdy.sharding" not in operation.attributes:
        return None
    return sdy.TensorShardingPerValueAttr(operation.attributes["sdy.sharding"]).shardings[number]
