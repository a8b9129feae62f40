"""Parts that are all of a tensor: wherever they begin, they are the tensor itself."""

from __future__ import annotations

from typing import Any

from .rewriter import Rewriter, shape_of


def whole_slice(op: Any, rewriter: Rewriter) -> None:
    """A slice as large as what it is cut from."""
    if shape_of(op.operands[0]) == shape_of(op.results[0]):
        rewriter.replace(op, op.operands[0])


def whole_update(op: Any, rewriter: Rewriter) -> None:
    """A tensor of which all is replaced."""
    if shape_of(op.operands[1]) == shape_of(op.results[0]):
        rewriter.replace(op, op.operands[1])
