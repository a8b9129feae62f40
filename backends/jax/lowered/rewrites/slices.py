"""Parts that are all of a tensor: wherever they begin, they are the tensor itself."""

from __future__ import annotations

import math
from typing import Any

from .rewriter import Rewriter, shape_of


def whole_slice(op: Any, rewriter: Rewriter) -> None:
    """A slice as large as what it is cut from."""
    if shape_of(op.operands[0]) == shape_of(op.results[0]):
        rewriter.replace(op, op.operands[0])


def whole_gather(op: Any, rewriter: Rewriter) -> bool:
    """One part as large as what it is looked up in, as an index into a dim of size one is. Whether it is that."""
    whole, found = shape_of(op.operands[0]), shape_of(op.results[0])
    if tuple(op.attributes["slice_sizes"]) != whole or math.prod(found) != math.prod(whole):
        return False
    rewriter.replace(op, rewriter.reshaped(op.operands[0], found, op))
    return True


def whole_update(op: Any, rewriter: Rewriter) -> None:
    """A tensor of which all is replaced."""
    if shape_of(op.operands[1]) == shape_of(op.results[0]):
        rewriter.replace(op, op.operands[1])
