"""Writes and prices the layouts of candidates as plans, the cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

from ...dsl.errors import PlanError
from ...dsl.plan import Limits
from ..graph import Sharding
from .again import Again
from .ahead import Ahead
from .board import Board, Settings
from .by_hand import ByHand
from .candidates import Candidate
from .near_limit import NearLimit
from .pen import Pen, keep_beyond
from .progress import Clock
from .readable import prefer_readable, shorten
from .result import PricedPlan
from .solving import Solving
from .task import Near
from .tried import CLOSE, Tried, beside
from .workload import Workload
from .written import Minimise

LOWERINGS = 4  # of the limit, where a plan takes more memory than its layouts promised
BROKEN = 1e-2  # how much more than its layouts cost a plan may take for nothing else to be written in its place


class Writing:
    """Makes plans of the layouts on the board."""

    def __init__(
        self,
        board: Board,
        settings: Settings,
        *,
        workload: Workload,
        minimise: Minimise,
        solving: Solving,
        again: Again,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._pen = Pen(board, settings, workload=workload, minimise=minimise, clock=clock, say=say)
        self._again, self._ahead, self._by_hand = again, Ahead(self._pen, solving), ByHand(self._pen)
        self._least: dict[int, Mapping[str, Sharding]] = {}  # of least memory, written
        self._runners_up: set[int] = set()  # the candidates of which these were written
        self._near_limit = NearLimit(board, self._near_plan)

    def write(self) -> None:
        """Writes and prices layouts as plans, the cheapest first, until the others cost more than the best plans."""
        left = [one for one in self._pen.board.every if one.layouts and one.priced is None and not one.why]
        late = self._pen.is_late  # what is written already comes first then

        def turn(one: Tried) -> tuple[bool, float, int]:
            return late and self._ahead.begun(one) is None, one.objective_s, one.candidate.index

        for one in sorted(left, key=turn):
            prices = [other.step_time_s for other in self._pen.board.ranked[: self._pen.board.top_k]]
            enough = len(prices) >= self._pen.board.top_k and one.objective_s >= prices[-1]
            if enough or (self._pen.is_late and prices and self._ahead.begun(one) is None):
                break
            self._pen.say(f"writing the plan of {one.candidate}")
            self._write_one(one)

    def _write_one(self, one: Tried) -> None:
        """Writes the plan of a candidate's layouts; where it takes too much memory, of layouts that take less."""
        lowered = 0
        for _ in range(LOWERINGS):
            try:
                written = self._pen.write(one, begun=self._ahead.begun(one))
            except PlanError as error:
                one.why = f"its layouts make no plan: {error.problems[0].message if error.problems else error}"
                return
            if self._ahead.is_written(one):
                self._ahead.keep(one, written)
            excess = self._pen.excess_bytes(written.estimate)
            if excess <= 0:
                self._pen.keep(one, written)
                one.why = ""
                return
            one.why = f"its plan takes {int(excess):,} bytes more than the limit"
            keep_beyond(one, written)
            lowered += int(excess)
            if self._pen.clock.over or not self._again.within(one, lowered):
                return

    def write_least(self, clock: Clock) -> None:
        """Writes the layouts of the least memory as plans, each once, until others promise to take more than one that
        was.
        """
        known = [
            one for one in self._pen.board.every if one.least and self._least.get(one.candidate.index) is not one.least
        ]
        for one in sorted(known, key=lambda one: (one.least_bytes, one.candidate.index)):
            beyond = self._pen.board.least_beyond
            if (beyond is not None and one.least_bytes >= beyond.peak_bytes) or clock.over:
                return
            self._pen.say(f"writing what takes least memory of {one.candidate}")
            self._least[one.candidate.index] = one.least
            try:
                keep_beyond(one, self._pen.write(one, clock.end, of=(one.least, 0.0)))
            except PlanError:
                continue

    def write_runners_up(self) -> None:
        """Writes the layouts that were next to a candidate's best, where the plan of these takes more than they cost,
        and more than the next: not all layouts are said by the names that a step has.
        """
        board = self._pen.board
        for one in board.tried:
            is_short_of = one.priced is not None and one.step_time_s > one.objective_s * (1 + BROKEN)
            if not is_short_of or one.candidate.index in self._runners_up:
                continue
            for each in one.runners_up:
                if each.objective_s >= board.written_s * (1 - CLOSE) or self._pen.is_late:
                    break
                self._runners_up.add(one.candidate.index)
                self._pen.say(f"writing the next plan of {one.candidate}")
                board.by_hand.append(found := beside(one.candidate, each.objective_s, each.layouts))
                self._write_one(found)

    def write_near(self) -> None:
        """Keeps the plans of layouts that take a little more memory than the limit, where these fit and are better."""
        for found, priced in self._near_limit.plans():
            self._pen.keep(found, priced)
            self._pen.board.by_hand.append(found)

    def _near_plan(self, one: Tried, near: Near, limits: Limits) -> PricedPlan | None:
        """The plan of layouts, written as if there were these limits, if it fits; else it is kept as one beyond."""
        if self._pen.is_late:
            return None
        self._pen.say(f"writing a plan of {one.candidate} that may fit")
        with suppress(PlanError):
            written = self._pen.write(one, of=(near.layouts, near.seconds), limits=limits)
            plan = replace(written.plan, limits=one.candidate.plan.limits)
            found = PricedPlan(plan=plan, estimate=self._pen.workload.estimate(plan))
            if self._pen.excess_bytes(found.estimate) <= 0:
                return found
            keep_beyond(one, found)
        return None

    def meanwhile(self) -> None:
        """Writes what there is to write while candidates are being solved."""
        if not self._pen.board.is_large:
            self.write_simple()
        self._ahead.write()

    def write_simple(self) -> None:
        """Writes what teams write by hand on the first mesh."""
        self._by_hand.write()

    def by_hand(self, candidate: Candidate) -> PricedPlan | None:
        """The plan of a candidate laid out by hand whose arguments take least."""
        return self._by_hand.plan_of(candidate)

    def shorten(self) -> None:
        """Gives up a best plan of many lines for one of few that takes little longer, and leaves lines out."""
        prefer_readable(self._pen, self._ahead)
        shorten(self._pen)
