"""Slices, pads and windows: dims that move by a neighbour's rows, and dims that must be whole."""

from __future__ import annotations

from ..graph import Sharding
from .elementwise import follow_result
from .layout import local_shape
from .strategy import Asked, Strategy


def dynamic_slice_rule(asked: Asked) -> Strategy:
    """Dims that are cut are whole; all others follow the result."""
    cut = [a != b for a, b in zip(asked.reads[0].shape, asked.makes[0].shape, strict=True)]
    layout = _without_dims(asked.results[0], cut)
    scalars = tuple(() for _ in asked.reads[1:])
    sizes = local_shape(asked.makes[0].shape, layout, asked.mesh)
    return Strategy(operands=(layout, *scalars), made=(layout,), attributes={"slice_sizes": sizes})


def dynamic_update_rule(asked: Asked) -> Strategy:
    """Dims that are updated in part are whole; all others follow the result."""
    cut = [a != b for a, b in zip(asked.reads[0].shape, asked.reads[1].shape, strict=True)]
    layout = _without_dims(asked.results[0], cut)
    scalars = tuple(() for _ in asked.reads[2:])
    return Strategy(operands=(layout, layout, *scalars), made=(layout,))


def follow_window(asked: Asked) -> Strategy:
    """A convolution whose window's dims are split: as its result lies, the kernel whole."""
    return follow_result(asked)


def halo_rule(asked: Asked) -> Strategy:
    """Slices, pads and windows: computed as the result lies."""
    return follow_result(asked)


def _without_dims(layout: Sharding, whole: list[bool]) -> Sharding:
    return tuple(() if gone else axes for axes, gone in zip(layout, whole, strict=True))
