"""Rows of neighbours brought to where a window needs them."""

from __future__ import annotations

from collections.abc import Sequence

from ..graph import Op, Value
from ..kinds import COLLECTIVE_PERMUTE
from .builder import Builder
from .strategy import Halo


def exchanged(builder: Builder, op: Op, operands: Sequence[int], halos: Sequence[Halo]) -> list[int]:
    """The operands with the halos that a strategy asks for, one permute for each neighbour that gives some."""
    made = list(operands)
    for halo in halos:
        made[halo.operand] = _widened(builder, op, made[halo.operand], halo)
    return made


def _widened(builder: Builder, op: Op, number: int, halo: Halo) -> int:
    own = builder.values[number]
    pieces = [number]
    if halo.sent:
        kept = _resized(own, halo.dim, max(halo.sent))
        pieces = [*builder.op("slice", (number,), (kept,), {}, op.origin)] if kept.shape != own.shape else pieces
        pieces += [_from_far(builder, op, number, halo, nth) for nth in range(len(halo.sent))]
        whole = _resized(own, halo.dim, kept.shape[halo.dim] + sum(halo.sent))
        return builder.op("concatenate", pieces, (whole,), {"dimension": halo.dim}, op.origin)[0]
    for rows, shift in ((halo.low, 1), (halo.high, -1)):
        while rows > 0:
            pieces.append(_sent(builder, op, number, halo, min(rows, own.shape[halo.dim]), shift))
            rows -= own.shape[halo.dim]
            shift += 1 if shift > 0 else -1
    whole = _resized(own, halo.dim, own.shape[halo.dim] + halo.low + halo.high)
    return builder.op("concatenate", pieces, (whole,), {"dimension": halo.dim}, op.origin)[0]


def _from_far(builder: Builder, op: Op, number: int, halo: Halo, nth: int) -> int:
    """The rows of one of the permutes that bring rows from further away, to one operation alone."""
    own = builder.values[number]
    strip = _resized(own, halo.dim, halo.sent[nth])
    if strip.shape != own.shape:
        (number,) = builder.op("slice", (number,), (strip,), {}, op.origin)
    attributes = {"axes": halo.axes, "dimensions": (halo.dim,), "target": (*op.results, nth)}
    return builder.op(COLLECTIVE_PERMUTE, (number,), (strip,), attributes, op.origin)[0]


def _sent(builder: Builder, op: Op, number: int, halo: Halo, rows: int, shift: int) -> int:
    own = builder.values[number]
    strip = _resized(own, halo.dim, rows)
    if rows < own.shape[halo.dim]:
        number = builder.once(("strip", number, halo.dim, rows, shift > 0), "slice", number, strip, op)
    attributes = {"axes": halo.axes, "dimensions": (halo.dim,), "shift": shift}
    return builder.op(COLLECTIVE_PERMUTE, (number,), (strip,), attributes, op.origin)[0]


def _resized(value: Value, dim: int, size: int) -> Value:
    return Value((*value.shape[:dim], size, *value.shape[dim + 1 :]), value.dtype)
