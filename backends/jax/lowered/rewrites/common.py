"""Operations that compute the same are computed once, in each block by itself: no loop reads more from outside."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from .....planner.partition.passes.scatters import EXCHANGED
from ..value_names import NOTES, READS, join_names
from .rewriter import BROADCAST, CONSTANT, maker

KEPT = ("stablehlo.custom_call", "stablehlo.rng", "stablehlo.rng_bit_generator", "stablehlo.iota", "func.call")
OF_SCALARS = frozenset({"stablehlo.reduce", "stablehlo.reduce_window", "stablehlo.scatter", "stablehlo.sort"})
"""What does to pairs of numbers what its region says."""
UNLIKE = (CONSTANT, BROADCAST)
"""Of what reads the same the type alone mostly tells these apart."""

COMMUTATIVE = frozenset(f"stablehlo.{name}" for name in ("add", "multiply", "maximum", "minimum", "and", "or", "xor"))
"""What is the same whatever comes first, as XLA's elimination of common subexpressions knows (``hlo_cse.cc``)."""


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
    nesting: dict[str, bool] = {}  # whether operations of this name have regions
    for operation in operations:
        name = operation.name
        nests = nesting.get(name)
        if nests is None:
            nests = nesting[name] = len(operation.regions) > 0
        if nests:
            if within is None or name in within:
                without_repetition(operation, within)
            if name not in OF_SCALARS:
                continue
        if name in KEPT:
            continue
        reads = (name, *operation.operands)
        if name in COMMUTATIVE:
            reads = (name, frozenset(reads[1:]))
        if name in UNLIKE:
            reads = (*reads, operation.results[0].type)
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


def constants_once(parent: Any, is_apart: Callable[[Any], bool]) -> None:
    """Does of ``without_repetition`` what it does to constants and broadcasts of them, those that are apart aside."""
    for region in parent.regions:
        for block in region.blocks:
            known: dict[Any, Any] = {}
            for operation in [op.operation for op in block.operations]:
                name = operation.name
                if len(operation.regions):
                    constants_once(operation, is_apart)
                elif name == CONSTANT or (name == BROADCAST and maker(operation.operands[0], CONSTANT) is not None):
                    key = (name, *operation.operands, _form(operation))
                    same = operation if is_apart(operation) else known.setdefault(key, operation)
                    if same is not operation:
                        operation.results[0].replace_all_uses_with(same.results[0])
                        operation.erase()


def _form(operation: Any) -> Any:
    """What an operation computes of its operands, whatever its name and what was done to it; itself where its
    attributes cannot be read, as complex constants'.
    """
    types = tuple([result.type for result in operation.results])
    try:
        said = operation.attributes.items()
        form = types, tuple([(n, each) for n, each in said if n != EXCHANGED and (n != NOTES or READS not in each)])
    except TypeError:
        return operation
    return (*form, *map(_inside, operation.regions)) if len(operation.regions) else form


def _inside(region: Any) -> Any:
    """What a region of scalars computes of the block's arguments, and of what comes from outside."""
    block = region.blocks[0]
    numbers: dict[Any, Any] = {argument: place for place, argument in enumerate(block.arguments)}
    found = []
    for operation in [op.operation for op in block.operations]:
        reads = tuple([numbers.get(each, each) for each in operation.operands])
        found.append((operation.name, reads, _form(operation)))
        numbers |= {result: len(numbers) + place for place, result in enumerate(operation.results)}
    return tuple(found)
