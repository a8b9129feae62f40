"""Operations that compute the same are computed once, in each block by itself: no loop reads more from outside."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

from ..value_names import EXCHANGED, NOTES, join_names
from .rewriter import BROADCAST, CONSTANT, maker

KEPT = ("stablehlo.custom_call", "stablehlo.rng", "stablehlo.rng_bit_generator", "stablehlo.iota", "func.call")


def without_repetition(module: Any, within: Container[str] | None = None) -> None:
    """Replaces, in place, every operation by an equal one before it in its block; what then has no use stays, but for
    constants and broadcasts of them, of which nothing asks how often what they read is read.

    Of operations with regions these ``within`` are looked into; all, unless it is given.
    """
    for region in module.regions:
        for block in region.blocks:
            _without_repetition(block, within)


def _without_repetition(block: Any, within: Container[str] | None) -> None:
    *operations, last = [op.operation for op in block.operations]
    if len(operations) == 1 and not len(operations[0].regions) and not len(last.regions):
        return  # what a reduction does, mostly
    known: dict[Any, dict[Any, Any]] = {}
    alone: dict[Any, Any] = {}
    for operation in operations:
        name = operation.name
        if len(operation.regions):
            if within is None or name in within:
                without_repetition(operation, within)
            continue
        if name in KEPT:
            continue
        reads = (name, *operation.operands)
        first = alone.setdefault(reads, operation)
        if first is operation or not len(operation.results):
            continue
        alike = known.setdefault(reads, {})
        if not alike:
            alike[_form(first)] = first
        same = alike.setdefault(_form(operation), operation)
        if same is not operation:
            join_names(operation, same)
            for old, new in zip(operation.results, same.results, strict=True):
                old.replace_all_uses_with(new)
            if name == CONSTANT or (name == BROADCAST and maker(operation.operands[0], CONSTANT) is not None):
                operation.erase()
    if len(last.regions) and (within is None or last.name in within):
        without_repetition(last, within)


def _form(operation: Any) -> Any:
    """What an operation computes of its operands, whatever it is named; itself where its attributes cannot be read, as
    complex constants'.
    """
    types = tuple([result.type for result in operation.results])
    try:
        said = operation.attributes.items()
        return types, tuple([(name, each) for name, each in said if name != NOTES or EXCHANGED not in each])
    except TypeError:
        return operation
