"""How a convolution's operands and result lie, and whether XLA's partitioner gets it right so."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .graph import Axes, Graph, Op, Sharding

KIND = "convolution"
PRODUCTS = "products"
"""The attribute of a convolution that the partitioner gets wrong: how often what it takes is charged."""
NEARLY = "The partitioner gets some convolutions wrong as they lie: what products in their place take is not known."
"""A note on an estimate of such a step that was not laid out anew, as ``apply`` would."""


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


def convolution_layouts(graph: Graph) -> list[ConvolutionLayout]:
    """The layouts of a graph's convolutions, loops not entered."""
    return [_layout(graph, op) for op in graph.of_kind(KIND)]


def _layout(graph: Graph, op: Op) -> ConvolutionLayout:
    values = [graph.values[value] for value in (*op.operands, *op.results)]
    return convolution_layout(op, *(value.sharding or ((),) * len(value.shape) for value in values))


def convolutions_in(graph: Graph) -> int:
    """How many convolutions a step has, loops entered."""
    return sum(1 for _, op, _ in graph.walk() if op.kind == KIND)


def any_wrong(graph: Graph, used: Collection[str]) -> bool:
    """Whether the partitioner gets some convolution of a laid out graph wrong, loops entered."""
    wrong = any(not layout.is_safe(used) for layout in convolution_layouts(graph))
    return wrong or any(any_wrong(body, used) for op in graph.ops for body in op.bodies)


def as_products(graph: Graph, used: Collection[str], count: int | None = None) -> Graph:
    """The same laid out graph, with what ``turns`` says of each convolution that the partitioner gets wrong on a mesh
    of these axes as its attribute ``PRODUCTS``; it has ``count`` convolutions.
    """
    count = convolutions_in(graph) if count is None else count
    if not count:
        return graph
    ops = tuple([_noted(graph, op, used, count) for op in graph.ops])
    return graph if all(new is old for new, old in zip(ops, graph.ops, strict=True)) else replace(graph, ops=ops)


def _noted(graph: Graph, op: Op, used: Collection[str], count: int) -> Op:
    if op.bodies:
        bodies = tuple([as_products(body, used, count) for body in op.bodies])
        return op if all(new is old for new, old in zip(bodies, op.bodies, strict=True)) else replace(op, bodies=bodies)
    if op.kind != KIND or (layout := _layout(graph, op)).is_safe(used):
        return op
    products = turns(op, graph.shape(op.operands[1]), graph.shape(op.results[0]), layout, used, count)
    return replace(op, attributes={**op.attributes, PRODUCTS: products})


def turns(
    op: Op, kernel: Sequence[int], result: Sequence[int], layout: ConvolutionLayout, used: Collection[str], count: int
) -> int:
    """How often a convolution of these shapes is computed: once, or as the sum of as many products as do for it.

    That is where a kernel's gradient is split along the window: then all of the image goes to every device. There is
    one product for each place in its kernel or its result, the fewer. Where the partitioner gets it wrong, all
    convolutions of the step, ``count``, become products, which is charged to the one that asks for it. That is no
    price, which only the step laid out anew has, but keeps a search from it; at least it is computed once.
    """
    given: Mapping[str, Sequence[int]] = op.attributes
    inside = [kernel[dim] for dim in given["kernel_spatial_dimensions"]]
    made = [result[dim] for dim in given["output_spatial_dimensions"]]
    products = min(math.prod(inside), math.prod(made))
    if not layout.is_safe(used):
        return products * count
    read, written = reaches(inside, given["rhs_dilation"], made, given["window_strides"])
    return products if written < read and _axes(layout.result[2:]) else 1


def reaches(
    inside: Sequence[int], dilation: Sequence[int], made: Sequence[int], strides: Sequence[int]
) -> tuple[int, int]:
    """How much of an image the places inside a convolution's kernel cover, and those that it has made.

    What covers less is a kernel: the result, where a kernel's gradient is made by going over all of an image.
    """
    return math.prod((*inside, *dilation)), math.prod((*made, *strides))


def _axes(by_dim: Sequence[Axes]) -> set[str]:
    return {axis for axes in by_dim for axis in axes}
