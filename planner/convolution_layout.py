"""How a convolution's operands and result lie, and whether XLA's partitioner gets it right so."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .graph import Axes, Op, Sharding


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionLayout:
    """The axes of each dim of a convolution's operands and result.

    ``inputs`` and ``result`` have batch, feature, then the window's dims; ``kernel`` outputs, features, window's dims.
    """

    inputs: Sharding
    kernel: Sharding
    result: Sharding

    def is_safe(self, used: Collection[str]) -> bool:
        """Whether the partitioner gets it right on a mesh of these axes of more than one device.

        No window dim is split; or neighbours exchange halos under a whole kernel; or a sum takes in all axes.
        """
        if len(used) < 2 or not any(_axes(lies[2:]) for lies in (self.inputs, self.kernel, self.result)):
            return True
        if not _axes(self.kernel) and self.inputs[2:] == self.result[2:]:
            return True
        return _axes(self.inputs[1:]) == set(used) == _axes(self.kernel[1:])


def convolution_layout(op: Op, inputs: Sharding, kernel: Sharding, result: Sharding) -> ConvolutionLayout:
    """The layout of a convolution whose tensors lie so, each in its own order of dims."""
    given: Mapping[str, Any] = op.attributes

    def ordered(lies: Sharding, *dims: str) -> Sharding:
        spatial: Sequence[int] = given[f"{dims[0].partition('_')[0]}_spatial_dimensions"]
        return tuple(lies[dim] for dim in (*(given[name] for name in dims), *spatial))

    return ConvolutionLayout(
        inputs=ordered(inputs, "input_batch_dimension", "input_feature_dimension"),
        kernel=ordered(kernel, "kernel_output_feature_dimension", "kernel_input_feature_dimension"),
        result=ordered(result, "output_batch_dimension", "output_feature_dimension"),
    )


def places(op: Op, kernel: Sequence[int], result: Sequence[int]) -> int:
    """Of how many matrix products a convolution is the sum: for each place in its kernel or its result, the fewer."""
    given: Mapping[str, Any] = op.attributes
    inside = math.prod(kernel[dim] for dim in given["kernel_spatial_dimensions"])
    return min(inside, math.prod(result[dim] for dim in given["output_spatial_dimensions"]))


def _axes(by_dim: Sequence[Axes]) -> set[str]:
    return {axis for axes in by_dim for axis in axes}
