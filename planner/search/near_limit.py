"""Plans of layouts that take a little more memory than the limit: what few lines say may take less.

It takes other copies and another program. Such layouts are written as if there were no limit first: where the plan is
to fit at any price, it may take far longer than one that does so by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ...dsl.plan import Limits
from .board import AGAIN, Board
from .result import PricedPlan
from .task import Near
from .tried import Tried, beside

MOST = 3
"""Layouts that are written in all."""

Write = Callable[[Tried, Near, Limits], PricedPlan | None]
"""Writes the plan of layouts as if there were these limits; None where it does not fit, or there is no time."""


class NearLimit:
    """Layouts near the limit, each of which is written once."""

    def __init__(self, board: Board, write: Write) -> None:
        self._board, self._write = board, write
        self._known: set[tuple[int, int, float]] = set()

    def plans(self) -> Iterator[tuple[Tried, PricedPlan]]:
        """Those that fit and take less time than the best plan, of the layouts nearest to the limit first."""
        several = [(near, one) for one in self._board.tried for near in one.near]
        for near, one in sorted(several, key=lambda each: (each[0].peak_bytes, each[0].seconds)):
            known = one.candidate.index, near.peak_bytes, near.seconds
            if near.seconds >= self._board.written_s * (1 - AGAIN) or known in self._known or len(self._known) >= MOST:
                continue
            self._known.add(known)
            several_limits = dict.fromkeys((Limits(), one.candidate.plan.limits))
            written = (self._write(one, near, limits) for limits in several_limits)
            priced = next((each for each in written if each is not None), None)
            if priced is not None and priced.step_time_s < self._board.written_s:
                yield beside(one.candidate, near.seconds, near.layouts), priced
