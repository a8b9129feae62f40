"""Branches that are known to be taken: XLA puts them in the place of the conditional before it partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..value_names import pass_names
from .rewriter import splat_of

CASE = "stablehlo.case"


def takes_known_branch(cases: Iterable[Any]) -> bool:
    """Replaces the first of these conditionals whose branch a constant chooses by that branch's operations, in place;
    whether there was one. Operations in its other branches are gone then.
    """
    for operation in cases:
        index = splat_of(operation.operands[0])
        if index is not None:
            _take(operation, int(index))
            return True
    return False


def _take(operation: Any, index: int) -> None:
    """Puts a branch's operations before the conditional, which goes; an index that names none takes the last."""
    branches = list(operation.regions)
    taken = branches[index if 0 <= index < len(branches) else -1].blocks[0]
    *body, end = [op.operation for op in taken.operations]
    for each in body:
        each.move_before(operation)
    values = list(end.operands)
    pass_names(operation, values)
    for result, value in zip(operation.results, values, strict=True):
        result.replace_all_uses_with(value)
    operation.erase()
