"""On which side of a kernel's product each value that it reads stands, if any."""

from __future__ import annotations

from collections.abc import Sequence

from ..fusion.nature import MULTIPLYING
from ..graph import Graph, Op

ONCE, LEFT, RIGHT = 0, 1, 2


def sides_of(graph: Graph, ops: Sequence[Op], reads: Sequence[int]) -> tuple[int, ...]:
    """``LEFT`` or ``RIGHT`` for what is computed into an operand of the product, ``ONCE`` for what comes behind it.

    Of a value on both sides the right one counts.
    """
    makers = {value: op for op in ops for value in op.results}
    side: dict[int, int] = {}
    for op in ops:
        if op.kind in MULTIPLYING:
            for here, value in zip((LEFT, RIGHT), op.operands, strict=False):
                _mark(makers, value, here, side)
    return tuple(side.get(value, ONCE) for value in reads)


def _mark(makers: dict[int, Op], value: int, here: int, side: dict[int, int]) -> None:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if side.get(value) != here:
            side[value] = here
            waiting.extend(makers[value].operands if value in makers else ())
