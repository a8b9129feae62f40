"""Sorts: the dim that is sorted is whole, its axes moved to another dim where one takes them."""

from __future__ import annotations

from .slices import moved_axes
from .strategy import Asked, Strategy


def sort_rule(asked: Asked) -> Strategy:
    """Every operand with the sorted dim whole; its axes split the first other dim that they divide."""
    layout = moved_axes(asked, asked.results[0], int(asked.op.attributes.get("dimension", -1)))
    return Strategy(operands=(layout,) * len(asked.operands), made=(layout,) * len(asked.results))
