"""A windowed product written down: its loop, and what stands before and after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..graph import Op, Value
from ..kinds import COLLECTIVE_PERMUTE
from .builder import Builder
from .windows import LOOP, Window, gather_body, sum_body, turns


def in_loop(
    builder: Builder, op: Op, window: Window, operands: Sequence[int], part: Value, attributes: Mapping[str, Any]
) -> int:
    """Writes a product in a loop of permutes; ``part`` is one device's of the result."""
    local = replace(op, attributes=attributes)
    if window.moving is None:
        return _sum(builder, local, window, operands, part)
    return _gather(builder, local, window, operands, part)


def _sum(builder: Builder, op: Op, window: Window, operands: Sequence[int], part: Value) -> int:
    """The zeros that a single turn begins with are computed, and sent, once for all loops that begin with the like."""
    left, right = (builder.values[number] for number in operands)
    trips = turns(window.parts)[0]
    zero = _zero(builder, op, part, trips)
    is_first = builder.is_first(("zeros sent", window.axes, part.shape, part.dtype))
    body = sum_body(op, window, left, right, part, sends_zeros=is_first)
    first, second = builder.op(LOOP, (zero, zero, *operands), (part, part), {}, op.origin, (body,), trips)
    return builder.op("add", (first, _sent(builder, op, window, second)), (part,), {}, op.origin)[0]


def _gather(builder: Builder, op: Op, window: Window, operands: Sequence[int], part: Value) -> int:
    moving = window.moving or 0
    moved, other = _rounded(builder, op, operands[moving]), operands[1 - moving]
    second, zero = _sent(builder, op, window, moved), _zero(builder, op, part, turns(window.parts)[0])
    values = [builder.values[n] for n in (moved, other)]
    body = gather_body(op, window, values[0], values[1], part)
    carry = (values[0], values[0], part)
    made = builder.op(LOOP, (moved, second, zero, other), carry, {}, op.origin, (body,), turns(window.parts)[0])
    return made[2]


def _rounded(builder: Builder, op: Op, number: int) -> int:
    """The operand that goes round in bfloat16, where the product would round it anyway."""
    value = builder.values[number]
    exact = any(p != "DEFAULT" for p in op.attributes.get("precision_config", ()))
    if value.dtype != "f32" or exact:
        return number
    return builder.op("convert", (number,), (Value(value.shape, "bf16"),), {}, op.origin)[0]


def _zero(builder: Builder, op: Op, part: Value, trips: int) -> int:
    """What a loop begins with: zeros, but for a single turn, which the compiler writes out."""
    if trips == 1:
        return builder.op("allocate", (), (part,), {}, op.origin)[0]
    (number,) = builder.op("constant", (), (Value((), part.dtype),), {"splat": 0.0}, op.origin)
    return builder.op("broadcast_in_dim", (number,), (part,), {"broadcast_dimensions": ()}, op.origin)[0]


def _sent(builder: Builder, op: Op, window: Window, number: int) -> int:
    attributes = {"axes": window.axes, "dimensions": (), "around": True}
    return builder.op(COLLECTIVE_PERMUTE, (number,), (builder.values[number],), attributes, op.origin)[0]
