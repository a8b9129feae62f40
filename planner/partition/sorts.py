"""Sorts: the dim that is sorted is whole, its axes moved to another dim where one takes them."""

from __future__ import annotations

from ..graph import Sharding
from .layout import ways
from .strategy import Asked, Strategy


def sort_rule(asked: Asked) -> Strategy:
    """Every operand with the sorted dim whole; its axes split the first other dim that they divide."""
    layout = _moved(asked, asked.results[0], int(asked.op.attributes.get("dimension", -1)))
    return Strategy(operands=(layout,) * len(asked.operands), made=(layout,) * len(asked.results))


def _moved(asked: Asked, layout: Sharding, dim: int) -> Sharding:
    shape = asked.makes[0].shape
    dim %= len(shape)
    axes = layout[dim]
    kept = [() if d == dim else own for d, own in enumerate(layout)]
    for other, size in enumerate(shape):
        if axes and other != dim and size % (ways(kept[other], asked.mesh) * ways(axes, asked.mesh)) == 0:
            kept[other] = (*kept[other], *axes)
            break
    return tuple(kept)
