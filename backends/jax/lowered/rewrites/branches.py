"""Branches that are known to be taken, and loops of one turn: XLA puts them in the place of the conditional or the loop
before it partitions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..loops import trips
from ..value_names import WHILE, pass_names
from .rewriter import splat_of

CASE = "stablehlo.case"


def takes_known(operations: Iterable[tuple[Any, str]]) -> bool:
    """Replaces the first of these operations, with their names, that is a conditional whose branch a constant chooses,
    or a loop of one turn, by what it does, in place; whether there was one. Operations inside may be gone then.
    """
    for operation, name in operations:
        index = splat_of(operation.operands[0]) if name == CASE else None
        if index is not None:
            _take(operation, int(index))
            return True
        if name == WHILE and trips(operation) == 1:
            _turn_once(operation)
            return True
    return False


def _take(operation: Any, index: int) -> None:
    """Takes a conditional's branch; an index that names none takes the last."""
    branches = list(operation.regions)
    _write_out(operation, branches[index if 0 <= index < len(branches) else -1].blocks[0])


def _turn_once(loop: Any) -> None:
    body = loop.regions[1].blocks[0]
    for argument, value in zip(body.arguments, loop.operands, strict=True):
        argument.replace_all_uses_with(value)
    _write_out(loop, body)


def _write_out(operation: Any, block: Any) -> None:
    """Puts a block's operations before the operation, which goes."""
    *body, end = [op.operation for op in block.operations]
    for each in body:
        each.move_before(operation)
    values = list(end.operands)
    pass_names(operation, values)
    for result, value in zip(operation.results, values, strict=True):
        result.replace_all_uses_with(value)
    operation.erase()
