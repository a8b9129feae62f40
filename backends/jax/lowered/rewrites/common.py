"""Operations that compute the same are computed once, in each block by itself: no loop reads more from outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..attributes import value_of
from ..value_names import pass_names
from .rewriter import CONSTANT

KEPT = ("stablehlo.custom_call", "stablehlo.rng", "stablehlo.rng_bit_generator", "stablehlo.iota", "func.call")


def without_repetition(module: Any) -> None:
    """Replaces, in place, every operation by an equal one before it in its block; what then has no use stays."""
    for block in _blocks(module):
        known: dict[Any, Any] = {}
        for op in list(block.operations)[:-1]:
            operation = op.operation
            if len(operation.regions) or not len(operation.results) or _is_kept(operation):
                continue
            same = known.setdefault(_key(operation), operation)
            if same != operation:
                pass_names(operation, same.results)
                for old, new in zip(operation.results, same.results, strict=True):
                    old.replace_all_uses_with(new)


def _is_kept(operation: Any) -> bool:
    return operation.name in KEPT or (operation.name == CONSTANT and value_of(operation) is None)


def _key(operation: Any) -> Any:
    """What an operation computes; itself where its attributes cannot be read, as of complex constants."""
    types = tuple(result.type for result in operation.results)
    try:
        attributes = tuple(operation.attributes.items())
    except TypeError:
        return operation
    return operation.name, tuple(operation.operands), types, attributes


def _blocks(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            yield block
            for inner in block.operations:
                yield from _blocks(inner.operation)
