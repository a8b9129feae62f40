"""What a product takes of memory where all that it works on passes vector memory in windows, two of each at a time.

The compiler cuts the result into pieces and, where an operand does not fit beside one, the depth as well; each operand
is read anew for every piece along the other. Every window waits for memory besides (``wait_cycles``). Seen on v4, v5e,
v5p and v6e: cycles of products of seven shapes, in float32 and bfloat16, whose windows the compiler prints.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from .coefficients import Coefficients
from .sides import LEFT, ONCE, RIGHT
from .work import Work

PIECE_SHARE = 0.6
"""What of the windows a piece of the result takes, or a panel of an operand that is held for others."""

WHOLE_SHARE = 1.4
"""How large a result may be against all windows that is one piece: it needs no second window."""

LEAST_SHARE = 0.3
"""What is left of the windows at least for operands."""


class Streams(NamedTuple):
    """Bytes that pass vector memory, in so many windows."""

    num_bytes: float
    windows: float


def windowed_cycles(
    work: Work, near: Sequence[bool], near_writes: Sequence[bool], behind: int, of: Coefficients
) -> float:
    """Cycles that a product waits for memory, the update ``behind`` it left out; ``near`` says what is at hand."""
    once, left, right = _far(work, near)
    written = sum(size for size, is_near in zip(work.writes, near_writes, strict=True) if not is_near)
    besides = once + written + work.spill_bytes - behind
    streams = _streams(left, right, once + written, _piece_bytes(work, once), of.scoped_bytes)
    return min((each.num_bytes + besides) * of.byte_cycles + each.windows * of.wait_cycles for each in streams)


def _far(work: Work, near: Sequence[bool]) -> tuple[float, float, float]:
    """The bytes read from memory: beside the product, of its left operand, of its right one."""
    far = [0.0, 0.0, 0.0]
    for size, is_near, side in zip(work.reads, near, work.sides, strict=True):
        far[side] += 0 if is_near else size
    return far[ONCE], far[LEFT], far[RIGHT]


def _piece_bytes(work: Work, once: float) -> float:
    """Bytes of all windows that follow the result: its own, what is read beside it, and the sum if that is another."""
    is_sum = len(work.writes) == 1 and not once and not work.spill_bytes
    return once + sum(work.writes) + (0.0 if is_sum else work.result_bytes / 2)


def _streams(left: float, right: float, besides: float, pieces: float, room: float) -> Iterator[Streams]:
    """The ways to cut a product: as one piece, in pieces along both operands, with panels of one held for the other."""
    if pieces <= WHOLE_SHARE * room:
        yield Streams(left + right, (left + right) / max(room - pieces / 2, LEAST_SHARE * room))
    if not left or not right:
        yield Streams(left + right, (left + right + besides) / room)
        return
    piece = PIECE_SHARE * room
    count = max(pieces / piece, 1.0)
    times = min(max(math.sqrt(count * left / right), 1.0), count)
    streamed = left * count / times + right * times
    yield Streams(streamed, streamed / (room - min(piece, pieces)))
    for streaming, held in ((left, right), (right, left)):
        streamed = streaming * math.ceil(held / piece) + held
        yield Streams(streamed, (streamed + besides) / (room - min(piece, held)))
