"""Convolutions whose window's dims are split: each device takes rows of its neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..graph import Axes, Sharding
from .elementwise import replicate
from .factors import kept, layouts, split_of
from .layout import used, ways, without
from .slices import Side, halo, neighbours
from .strategy import Asked, Halo, PartialSum, Strategy


def follow_window(asked: Asked) -> Strategy:
    """A convolution as its result lies, its images split so too; a kernel's gradient is a sum over what is split. Where
    both operands are split along what is added up, in so many ways and in others, every device has all of both (seen
    on v3 and v5e, of kernels' gradients and of features).
    """
    factors = asked.op.factors
    if factors is None:
        return replicate(asked)
    images, kernel = (
        split_of(dims, layout, factors.sizes, asked.mesh) or {}
        for dims, layout in zip(factors.operands[:2], asked.operands[:2], strict=True)
    )
    both = (factor for factor in factors.reduction if factor in images and factor in kernel)
    if any(ways(images[factor], asked.mesh) != ways(kernel[factor], asked.mesh) for factor in both):
        return replicate(asked)
    result = split_of(factors.results[0], asked.results[0], factors.sizes, asked.mesh) or {}
    summed = kept(images, factors.reduction)
    taken = {axis for axes in summed.values() for axis in axes}
    if taken & {*used(asked.results[0])}:  # what is added up is made whole, and cut afterwards
        return follow_window(replace(asked, results=(without(asked.results[0], taken),)))
    halos, turned = tuple(_halos(asked)), tuple(_gradient_halos(asked))
    operands = layouts(factors.operands, {**result, **summed}, factors, asked.mesh)
    made = layouts(factors.results, {**result, **summed}, factors, asked.mesh)
    around = {axis for h in turned for axis in h.axes}
    sums = [tuple(axis for axes in summed.values() for axis in axes if axis not in around)]
    if turned:
        operands = asked.operands
        sums += [h.axes for h in turned]
    return Strategy(
        operands=operands,
        made=made,
        sums=tuple(PartialSum(axes) for axes in sums if axes),
        halos=tuple(h for h in (*halos, *turned) if h.low + h.high > 0),
    )


def is_product(asked: Asked) -> bool:
    """Whether a convolution is a product of matrices along each dim of its window, as XLA's partitioner reads it: the
    window covers all of an image, or is one place that moves on by one.
    """
    given: Mapping[str, Any] = asked.op.attributes
    inputs = [asked.reads[0].shape[dim] for dim in given["input_spatial_dimensions"]]
    for size, side, (low, high) in zip(inputs, _sides(asked), given["padding"], strict=True):
        is_plain = side.dilation == side.spread == 1 and low == high == 0
        if not (is_plain and (side.size == size or side.size == side.stride == 1)):
            return False
    return True


def by_groups(asked: Asked) -> Strategy | None:
    """A convolution of groups of features whose kernel is split along them: its images are split so too.

    The groups are those of features that enter, or, where a kernel's gradient is made, stand for a batch.
    """
    given: Mapping[str, Any] = asked.op.attributes
    kinds = [kind for kind in ("feature", "batch") if int(given.get(f"{kind}_group_count", 1)) > 1]
    axes = asked.operands[1][given["kernel_output_feature_dimension"]]
    if len(kinds) != 1 or not axes or int(given[f"{kinds[0]}_group_count"]) % ways(axes, asked.mesh):
        return None
    image = without(asked.operands[0], axes)
    summed = image[given["input_feature_dimension"]] if kinds == ["batch"] else ()
    batch = image[given["input_batch_dimension"]] if kinds == ["feature"] else ()
    first, second = (batch, axes) if kinds == ["feature"] else (axes, summed)
    return Strategy(
        operands=(
            _laid(asked, {"input_batch_dimension": first, "input_feature_dimension": second}),
            _laid(asked, {"kernel_output_feature_dimension": axes, "kernel_input_feature_dimension": summed}),
        ),
        made=(_laid(asked, {"output_feature_dimension": axes, "output_batch_dimension": batch}),),
        sums=(PartialSum(summed),) if summed else (),
    )


def _laid(asked: Asked, dims: Mapping[str, Axes]) -> Sharding:
    """A layout of an operand or result of a convolution by the names of its dims."""
    split = {asked.op.attributes[name]: axes for name, axes in dims.items()}
    return tuple(split.get(dim, ()) for dim in range(len(asked.makes[0].shape)))


def _halos(asked: Asked) -> Iterator[Halo]:
    given: Mapping[str, Any] = asked.op.attributes
    inputs, outputs = given["input_spatial_dimensions"], given["output_spatial_dimensions"]
    for side, dim, out in zip(_sides(asked), inputs, outputs, strict=True):
        found = halo(asked, side, dim, out) if asked.results[0][out] else None
        if found is not None:
            yield found


def _gradient_halos(asked: Asked) -> Iterator[Halo]:
    """The halos of a convolution whose kernel is split along its window as the images are: the kernel's gradient."""
    given: Mapping[str, Any] = asked.op.attributes
    inputs, windows = given["input_spatial_dimensions"], given["kernel_spatial_dimensions"]
    places = [asked.makes[0].shape[d] for d in given["output_spatial_dimensions"]]
    for side, dim, window, count in zip(_sides(asked), inputs, windows, places, strict=True):
        axes: Axes = asked.operands[1][window]
        if axes and axes == asked.operands[0][dim]:
            parts = ways(axes, asked.mesh)
            own, kernel = (-(-v.shape[d] // parts) for v, d in zip(asked.reads[:2], (dim, window), strict=True))
            piece = Side(kernel, side.stride, side.low, side.dilation, side.spread)
            moved = [
                Side(piece.size, piece.stride, side.low - i * kernel * side.dilation, side.dilation, side.spread)
                for i in range(parts)
            ]
            found = neighbours(dim, axes, own, [(m.first(0), m.last(count - 1)) for m in moved])
            yield found if found is not None else Halo(0, dim, axes, 0, 0)


def _sides(asked: Asked) -> list[Side]:
    given = asked.op.attributes
    sizes = [asked.reads[1].shape[d] for d in given["kernel_spatial_dimensions"]]
    lows = [low for low, _ in given["padding"]]
    sides = zip(sizes, given["window_strides"], lows, given["rhs_dilation"], given["lhs_dilation"], strict=True)
    return [Side(*side) for side in sides]
