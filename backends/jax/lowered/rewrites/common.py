"""Operations that compute the same are computed once, in each block by itself: no loop reads more from outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

KEPT = ("stablehlo.custom_call", "stablehlo.rng", "stablehlo.rng_bit_generator", "stablehlo.iota", "func.call")


def without_repetition(module: Any) -> None:
    """Replaces, in place, every operation by an equal one before it in its block; what then has no use stays."""
    for block in _blocks(module):
        known: dict[Any, Any] = {}
        for op in list(block.operations)[:-1]:
            operation = op.operation
            if len(operation.regions) or not len(operation.results) or operation.name in KEPT:
                continue
            same = known.setdefault(_key(operation), operation)
            if same != operation:
                for old, new in zip(operation.results, same.results, strict=True):
                    old.replace_all_uses_with(new)


def _key(operation: Any) -> Any:
    types = tuple(result.type for result in operation.results)
    return operation.name, tuple(operation.operands), types, tuple(operation.attributes.items())


def _blocks(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            yield block
            for inner in block.operations:
                yield from _blocks(inner.operation)
