"""Products whose operand's gather, or whose result's sum, is spread over a loop of permutes beside the product.

From v4 on the TPU compiler hides such a collective behind the product that needs it (XLA's windowed einsum). The loop
runs both ways round the ring and two steps a turn: each turn sends four parts and multiplies by four.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..graph import Axes, Graph, Op, Origin, Value
from ..images import CONVOLUTION
from ..kinds import COLLECTIVE_PERMUTE
from .reshard import SLICE

LOOP, UPDATE = "while", "dynamic_update_slice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A product in a loop over ``axes``, of ``parts`` devices.

    ``moving`` is the operand whose parts go round (0 or 1), None where the result's partial sums do. ``dims`` are the
    dims, of the left operand, the right one and the result, along which a turn takes a part; None where it takes all.
    """

    axes: Axes
    parts: int
    moving: int | None
    dims: tuple[int | None, int | None, int | None]


@dataclass(slots=True)
class _Body:
    """A loop's body while it is written."""

    origin: Origin
    values: list[Value] = field(default_factory=list)
    ops: list[Op] = field(default_factory=list)

    def value(self, value: Value) -> int:
        self.values.append(value)
        return len(self.values) - 1

    def op(self, kind: str, operands: Sequence[int], result: Value, attributes: Mapping[str, Any]) -> int:
        number = self.value(result)
        self.ops.append(
            Op(kind=kind, operands=tuple(operands), results=(number,), attributes=attributes, origin=self.origin)
        )
        return number

    def permute(self, value: int, axes: Axes) -> int:
        attributes = {"axes": axes, "dimensions": (), "around": True}
        return self.op(COLLECTIVE_PERMUTE, (value,), self.values[value], attributes)

    def part(self, value: int, dim: int | None, parts: int, step: int, count: int = 1) -> int:
        """``count`` of so many parts of a value along a dim: others at each step of a turn."""
        if dim is None:
            return value
        sized = resized(self.values[value], dim, -(-self.values[value].shape[dim] // parts) * count)
        return self.op(SLICE, (value,), sized, {"slice_sizes": sized.shape, "step": step})


def resized(value: Value, dim: int, size: int) -> Value:
    """The value with another size along one dim."""
    shape = (*value.shape[:dim], size, *value.shape[dim + 1 :])
    return Value(shape, value.dtype)


def turns(parts: int) -> tuple[int, int]:
    """How often the loop turns, and how many parts each turn handles: four where they divide, else two or one."""
    handled = 4 if parts % 4 == 0 else 2 if parts % 2 == 0 else 1
    return parts // handled, handled


def sum_body(op: Op, window: Window, left: Value, right: Value, part: Value, *, sends_zeros: bool = True) -> Graph:
    """One turn of a loop that sums partial results while they go round; ``part`` is what a device keeps of them.

    The zeros to begin with are sent too, unless ``sends_zeros`` says of a single turn that another loop sent the like.
    """
    body = _Body(op.origin)
    arguments = [body.value(v) for v in (part, part, left, right)]
    trips, handled = turns(window.parts)
    sums = _begun(body, arguments[:2])
    for step in range(max(1, handled // 2)):
        operands = [
            body.part(value, dim, window.parts, step, 2)
            for value, dim in zip(arguments[2:], window.dims[:2], strict=True)
        ]
        dim = window.dims[2] or 0
        made = body.op(op.kind, operands, resized(part, dim, part.shape[dim] * 2), op.attributes)
        is_sent = sends_zeros or trips > 1 or step > 0
        axes = window.axes if is_sent else ()
        sums = [_added(body, value, made, dim, half, axes) for half, value in enumerate(sums)]
    return _graph(body, arguments, sums)


def _begun(body: _Body, sums: Sequence[int]) -> list[int]:
    """The sums that a turn begins with: what it is given, but in the first turn nothing yet."""
    part = body.values[sums[0]]
    is_first = body.op("constant", (), Value((), "pred"), {"splat": 0.0})
    nothing = body.op("constant", (), Value((), part.dtype), {"splat": 0.0})
    zero = body.op("broadcast_in_dim", (nothing,), part, {"broadcast_dimensions": ()})
    return [body.op("select", (is_first, zero, value), part, {}) for value in sums]


def _added(body: _Body, value: int, made: int, dim: int, half: int, axes: Axes) -> int:
    """A sum, sent on along the axes, if any, with the half of a product that belongs to it."""
    part = body.values[value]
    sent = body.permute(value, axes) if axes else value
    return body.op("add", (sent, body.op("slice", (made,), part, _half(part, dim, half))), part, {})


def _half(part: Value, dim: int, half: int) -> Mapping[str, Any]:
    """What a slice says that takes a part along a dim out of two."""
    begin = tuple(half * size if d == dim else 0 for d, size in enumerate(part.shape))
    end = tuple(first + size for first, size in zip(begin, part.shape, strict=True))
    return {"start_indices": begin, "limit_indices": end, "strides": (1,) * len(part.shape)}


def gather_body(op: Op, window: Window, moved: Value, other: Value, result: Value) -> Graph:
    """One turn of a loop that multiplies by an operand's parts as they go round."""
    body = _Body(op.origin)
    arguments = [body.value(v) for v in (moved, moved, result, other)]
    first, second, whole = arguments[:3]
    trips, handled = turns(window.parts)
    steps = max(1, handled // 2)
    for step in range(steps):
        whole = _multiplied(body, op, window, (first, second), whole, arguments[3], step)
        if trips > 1 or step + 1 < steps:  # what nothing reads any more is not sent
            first, second = body.permute(first, window.axes), body.permute(second, window.axes)
    return _graph(body, arguments, [first, second, whole])


def _multiplied(body: _Body, op: Op, window: Window, moved: tuple[int, int], whole: int, other: int, step: int) -> int:
    """The product of two parts put together and what they meet of the other operand, put into or added to the whole."""
    moving = window.moving or 0
    dim = window.dims[moving] or 0
    value = body.values[moved[0]]
    both = body.op("concatenate", moved, resized(value, dim, value.shape[dim] * 2), {"dimension": dim})
    met = body.part(other, window.dims[1 - moving], window.parts, step, 2)
    operands = (both, met) if moving == 0 else (met, both)
    out = window.dims[2]
    result = body.values[whole]
    if out is None:
        made = body.op(op.kind, operands, result, op.attributes)
        return body.op("add", (whole, made), result, {})
    part = resized(result, out, -(-result.shape[out] // window.parts))
    made = body.op(op.kind, operands, resized(part, out, part.shape[out] * 2), op.attributes)
    if op.kind == CONVOLUTION:
        return body.op(UPDATE, (whole, made), result, {})
    for half in range(2):
        whole = body.op(UPDATE, (whole, body.op("slice", (made,), part, _half(part, out, half))), result, {})
    return whole


def _graph(body: _Body, arguments: Sequence[int], results: Sequence[int]) -> Graph:
    return Graph(values=tuple(body.values), ops=tuple(body.ops), arguments=tuple(arguments), results=tuple(results))
