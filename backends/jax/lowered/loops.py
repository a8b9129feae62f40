"""How often a ``while`` turns, from its condition: scans and loops that count."""

from __future__ import annotations

import math
from typing import Any

from jaxlib.mlir import ir

from .attributes import plain

CONSTANTS = ("stablehlo.constant", "sdy.constant")
PASSED_ON = ("stablehlo.convert", "sdy.reshard", "sdy.sharding_constraint", "stablehlo.reshape")
COUNTED = {"LT": 0, "NE": 0, "LE": 1, "GT": 0, "GE": 1}
"""By comparison: how much further than to its limit a counter runs."""


def trips(loop: Any) -> int | None:
    """The turns of a ``stablehlo.while``; None where they depend on more than constants."""
    compare = _returned(loop, 0)[0].owner
    if isinstance(compare, ir.Block) or compare.name != "stablehlo.compare":
        return None
    direction = str(compare.attributes["comparison_direction"]).rstrip(">").split(" ")[-1]
    left, right = compare.operands
    if direction not in COUNTED or not _is_state(left):
        return None
    begin, end, step = _number(left, loop), _number(right, loop), _step(loop, left.arg_number)
    if begin is None or end is None or not step:
        return None
    further = COUNTED[direction] if step > 0 else -COUNTED[direction]
    return max(0, math.ceil((end + further - begin) / step))


def _returned(loop: Any, region: int) -> list[Any]:
    operations = loop.regions[region].blocks[0].operations
    return list(operations[len(operations) - 1].operands)


def _is_state(value: Any) -> bool:
    return isinstance(value.owner, ir.Block)


def _step(loop: Any, position: int) -> int | None:
    """What the body adds to the counter."""
    value = _beyond(_returned(loop, 1)[position])
    if _is_state(value) or value.owner.name not in ("stablehlo.add", "stablehlo.subtract"):
        return None
    counter, step = value.owner.operands
    if _is_constant(_beyond(counter)):
        counter, step = step, counter
    counter, amount = _beyond(counter), _constant(_beyond(step))
    if amount is None or not _is_state(counter) or counter.arg_number != position:
        return None
    return amount if value.owner.name == "stablehlo.add" else -amount


def _number(value: Any, loop: Any) -> int | None:
    """A number known before the loop: a constant, or an element of its state that begins as one."""
    value = _beyond(value)
    if not _is_state(value):
        return _constant(value)
    if value.owner.owner != loop:
        return None
    return _constant(_beyond(loop.operands[value.arg_number]))


def _beyond(value: Any) -> Any:
    """What a value is a converted or resharded copy of."""
    while not _is_state(value) and value.owner.name in PASSED_ON:
        value = value.owner.operands[0]
    return value


def _is_constant(value: Any) -> bool:
    return not _is_state(value) and value.owner.name in CONSTANTS


def _constant(value: Any) -> int | None:
    if not _is_constant(value):
        return None
    said = value.owner.attributes["value"].maybe_downcast()
    return int(plain(said.get_splat_value())) if isinstance(said, ir.DenseIntElementsAttr) and said.is_splat else None
