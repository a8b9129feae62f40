"""The order of a program's operations, in which propagation walks them: XLA's, which sorts every computation anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir


def in_order_of_use(module: Any) -> None:
    """Sorts the operations of every block, in place, as a search from what it returns meets them, depth first.

    What nothing uses is dropped, unless it has an effect.
    """
    for function in module.regions[0].blocks[0].operations:
        for block in _blocks(function.operation):
            _sort(block)


def _sort(block: Any) -> None:
    operations = [op.operation for op in block.operations]
    last = operations[-1]
    seen: set[Any] = set()
    for root in (op for op in operations if op == last or _has_effect(op)):
        for operation in _needed(root, block, seen):
            if operation != last:
                operation.move_before(last)
    for operation in reversed(operations):
        if operation not in seen:
            operation.erase()


def _needed(root: Any, block: Any, seen: set[Any]) -> Iterator[Any]:
    """What ``root`` needs of a block, itself last, operands in their order before what reads them."""
    stack = [(root, iter(_makers(root, block)))]
    entered = {root}
    while stack:
        operation, makers = stack[-1]
        maker = next((m for m in makers if m not in seen and m not in entered), None)
        if maker is not None:
            entered.add(maker)
            stack.append((maker, iter(_makers(maker, block))))
            continue
        stack.pop()
        if operation not in seen:
            seen.add(operation)
            yield operation


def _makers(operation: Any, block: Any) -> list[Any]:
    """The operations of the block whose results this one reads, or something in its regions."""
    found = [value.owner for value in _read(operation) if not isinstance(value.owner, ir.Block)]
    return [maker.operation for maker in found if maker.operation.block == block]


def _read(operation: Any) -> Iterator[Any]:
    yield from operation.operands
    for block in _own_blocks(operation):
        for inner in block.operations:
            yield from _read(inner.operation)


def _has_effect(operation: Any) -> bool:
    return operation.name == "stablehlo.custom_call" and "has_side_effect" in operation.attributes


def _own_blocks(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        yield from region.blocks


def _blocks(operation: Any) -> Iterator[Any]:
    for block in _own_blocks(operation):
        yield block
        for inner in block.operations:
            yield from _blocks(inner.operation)
