"""What is written ahead of its turn, while candidates are being solved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from ...dsl.errors import PlanError
from ..graph import Sharding
from .pen import Pen
from .result import PricedPlan
from .solving import Solving
from .task import First
from .tried import Tried
from .written import Written

SEVERAL = 2  # candidates solved, before the best is written while others are
LONG_S = 3.0
"""A search that has lasted so long writes long plans too; of what is quicker another is soon better."""
READABLE = 3e-2
"""What a plan of a long step may take more that has few lines, and what another has to take less for it to be left."""


class _OvertakenError(Exception):
    """What is being written is not the best any more."""


class Ahead:
    """Plans that were written before it was their turn."""

    def __init__(self, pen: Pen, solving: Solving) -> None:
        self._pen, self._solving = pen, solving
        self._ahead: dict[int, tuple[Tried, Mapping[str, Sharding], Written | None]] = {}
        self._firsts: dict[int, tuple[First, Written]] = {}  # written before they were proven

    def write(self) -> None:
        """Writes what there is to write while candidates are being solved: the best layouts so far, where that takes
        long.
        """
        while (self._pen.board.is_large or self._pen.clock.elapsed_s > LONG_S) and self._write_ahead():
            pass
        while self._write_first():
            pass

    def keep(self, one: Tried, written: Written) -> None:
        """Keeps what was written of a candidate's layouts."""
        self._ahead[one.candidate.index] = one, one.layouts, written

    def is_written(self, one: Tried) -> bool:
        """Whether the layouts of a candidate were written."""
        known = self._ahead.get(one.candidate.index)
        return known is not None and known[1] is one.layouts

    def begun(self, one: Tried) -> Written | None:
        """What was written of its layouts before anything was proven."""
        first = self._firsts.get(one.candidate.index)
        if first is not None and _is_of(first[0], one):
            return first[1]
        return self._ahead[one.candidate.index][2] if self.is_written(one) else None

    def fitting(self) -> Iterator[tuple[Tried, PricedPlan]]:
        """The plans written ahead that fit."""
        for one, layouts, written in self._ahead.values():
            if written is not None and one.layouts is layouts and self._pen.excess_bytes(written.estimate) <= 0:
                yield one, PricedPlan(plan=written.plan, estimate=written.estimate)

    def _write_first(self) -> bool:
        """Writes what was found first of a candidate that is solved alone, while it is proven, for when it is its turn;
        left where something better is found: whether that is so. The step is told of the plan, in the first half of the
        time. Whether there was time for it changes nothing of the plan.
        """
        found = self._solving.first()
        if found is None or self._pen.is_late:
            return False
        one, first = found
        if one.priced or self.is_written(one) or first.objective_s >= self._pen.board.worth_s:
            return False

        def look() -> None:
            self._solving.tend()
            is_best = self._solving.is_told(one, first) if self._solving.solves(one) else _is_of(first, one)
            if self._pen.clock.stopped or not is_best:
                raise _OvertakenError

        self._pen.say(f"writing the plan of {one.candidate}")
        with suppress(_OvertakenError, PlanError):  # of which it is told when it is its turn
            written = self._pen.write(one, before=look, of=(first.layouts, first.objective_s), proven_s=0.0)
            self._firsts[one.candidate.index] = first, written
            if self._pen.clock.left_s > self._pen.clock.elapsed_s:  # what it makes ready is done at one go
                look()
                self._pen.workload.foresee(written.plan)
        return not self._pen.clock.stopped and self._solving.solves(one)

    def _write_ahead(self) -> bool:
        """Writes the best layouts so far, for when it is their turn; whether better ones came and it was left."""
        one = self._leader
        if one is None or self._pen.clock.stopped or self.is_written(one) or (self._ahead and self._pen.is_late):
            return False
        layouts, objective_s = one.layouts, one.objective_s

        def look() -> None:
            self._solving.tend()
            leader = self._leader
            is_left = leader is None or leader.objective_s < objective_s * (1 - READABLE)
            if self._pen.clock.stopped or is_left or one.layouts is not layouts:
                raise _OvertakenError

        self._pen.say(f"writing the plan of {one.candidate}")
        try:
            written = self._pen.write(one, before=look, proven_s=0.0)
            self._ahead[one.candidate.index] = one, layouts, written
            self._pen.board.is_near = self._pen.settings.is_near(written.estimate)
        except _OvertakenError:
            return True
        except PlanError:
            self._ahead[one.candidate.index] = one, layouts, None  # which it is told of when it is its turn
        return self._leader is not one

    @property
    def _leader(self) -> Tried | None:
        """The best of those solved, once there are several, that may be better than what was written."""
        tried, written_s = self._pen.board.tried, self._pen.board.written_s
        left = [one for one in tried if one.layouts and one.priced is None and not one.why]
        found = [one for one in left if one.objective_s < written_s]
        several = sum(1 for one in tried if one.solved) >= SEVERAL
        return min(found, key=lambda one: (one.objective_s, one.candidate.index), default=None) if several else None


def _is_of(first: First, one: Tried) -> bool:
    """Whether what was found first of a candidate is the best of it."""
    return one.objective_s == first.objective_s and one.layouts == first.layouts
