"""Convolutions whose window's dims are split: each device takes rows of its neighbours, and the whole kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .elementwise import replicate
from .factors import kept, layouts, split_of
from .slices import Side, halo, windows
from .strategy import Asked, PartialSum, Strategy


def follow_window(asked: Asked) -> Strategy:
    """A convolution as its result lies where its images are split so too; a gradient of the kernel is a partial sum."""
    factors = asked.op.factors
    if factors is None:
        return replicate(asked)
    images = split_of(factors.operands[0], asked.operands[0], factors.sizes, asked.mesh) or {}
    result = split_of(factors.results[0], asked.results[0], factors.sizes, asked.mesh) or {}
    summed = kept(images, factors.reduction)
    split = {**result, **summed}
    halos = tuple(h for h in _halos(asked) if h is not None)
    return Strategy(
        operands=layouts(factors.operands, split, factors, asked.mesh),
        made=layouts(factors.results, split, factors, asked.mesh),
        sums=(PartialSum(tuple(a for axes in summed.values() for a in axes)),) if summed else (),
        halos=halos,
    )


def _halos(asked: Asked) -> list[Any]:
    given: Mapping[str, Any] = asked.op.attributes
    inputs, outputs = given["input_spatial_dimensions"], given["output_spatial_dimensions"]
    found = []
    for side, dim, out in zip(_sides(asked), inputs, outputs, strict=True):
        if asked.results[0][out]:
            found.append(halo(asked, side, dim, out))
    return found


def _sides(asked: Asked) -> list[Side]:
    given = asked.op.attributes
    sizes = [asked.reads[1].shape[d] for d in given["kernel_spatial_dimensions"]]
    lows = [low for low, _ in given["padding"]]
    return windows(sizes, given["window_strides"], lows, given["rhs_dilation"])
