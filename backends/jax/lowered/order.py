"""The order of a program's operations, in which propagation walks them: XLA's, which sorts every computation anew."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any


def in_order_of_use(module: Any) -> None:
    """Sorts the operations of every block, in place, as a search from what it returns meets them, depth first.

    What nothing uses is dropped, unless it has an effect.
    """
    waiting = [function.operation for function in module.regions[0].blocks[0].operations]
    while waiting:
        for block in _own_blocks(waiting.pop()):
            waiting += _sort(block)


def _sort(block: Any) -> list[Any]:
    """Sorts the operations of a block; those of them that have regions."""
    operations = [op.operation for op in block.operations]
    last = len(operations) - 1
    at = {result: number for number, op in enumerate(operations) for result in op.results}
    nesting = {number for number, op in enumerate(operations) if len(op.regions)}
    read = (_read(op) if number in nesting else op.operands for number, op in enumerate(operations))
    needs = [[number for number in map(at.get, values) if number is not None] for values in read]
    seen: set[int] = set()
    ends = [*(number for number, op in enumerate(operations[:last]) if _has_effect(op)), last]
    order = [number for end in ends for number in _needed(end, needs, seen)]
    standing = next((n for n, number in enumerate(order) if n != number), len(order))
    for number in order[standing:]:
        if number != last:
            operations[number].move_before(operations[last])
    for number in range(len(operations) - 1, -1, -1):
        if number not in seen:
            operations[number].erase()
    return [operations[number] for number in order if number in nesting]


def _needed(root: int, needs: Sequence[Sequence[int]], seen: set[int]) -> list[int]:
    """What ``root`` needs of a block, itself last, operands in their order before what reads them."""
    order: list[int] = []
    stack = [(root, iter(needs[root]))]
    entered = {root}
    while stack:
        operation, makers = stack[-1]
        for maker in makers:
            if maker not in seen and maker not in entered:
                entered.add(maker)
                stack.append((maker, iter(needs[maker])))
                break
        else:
            stack.pop()
            if operation not in seen:
                seen.add(operation)
                order.append(operation)
    return order


def _read(operation: Any) -> Iterable[Any]:
    """What an operation reads, and those inside of it."""
    if not len(operation.regions):
        return operation.operands  # type: ignore[no-any-return]
    inner = (each.operation for block in _own_blocks(operation) for each in block.operations)
    return [*operation.operands, *(value for each in inner for value in _read(each))]


def _has_effect(operation: Any) -> bool:
    return operation.name == "stablehlo.custom_call" and "has_side_effect" in operation.attributes


def _own_blocks(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        yield from region.blocks
