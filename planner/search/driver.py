"""Solves candidates, the best bound first, and prices what they give, until no other one can be better.

Two rounds take turns: candidates are solved, each below the best that is known; the best layouts are written as plans
and priced. Meshes of three axes, which take long, wait for the first plan. What is solved when, and below which cutoff,
depends on the order of the candidates alone and not on which worker is quicker, so that two searches never differ
unless the time ends them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .again import Again
from .alike import alike
from .board import Board, Settings
from .candidates import Candidate, Candidates
from .pool import Pool
from .progress import Clock, Progress
from .result import PricedPlan
from .solving import Solving
from .tried import Tried, why_not
from .workload import Workload
from .writing import Writing
from .written import Minimise

ROUNDS = 5
BETTER = 2  # plans are written, and once more what was found beside them
FEW_AXES = 2  # programs of meshes of more take many times as long to build
LOWERED = 2  # candidates of which what takes least memory is looked for, where none fits
LOWERING = 0.7  # of the time for that
ANEW = {"full": 0, "dots": 1}  # policies, those that compute most anew first


class Driver:
    """A search over candidates."""

    def __init__(
        self,
        candidates: Candidates,
        settings: Settings,
        *,
        workload: Workload,
        pool: Pool,
        minimise: Minimise,
        clock: Clock,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        tried = [Tried(candidate=c, bound_s=_first_bound(c, settings), floor_s=c.floor_s) for c in candidates.listed]
        several = alike(tried, settings.unlisted)
        self.board = Board(tried=tried, num_ops=candidates.num_ops, alike=several)
        self._settings, self._clock, self._on_progress = settings, clock, on_progress
        self._excused: list[Tried] = []  # of whom is said why they have no plan, as far as is known
        self._solving = Solving(self.board, settings, workload=workload, pool=pool, clock=clock, say=self._say)
        self._again = Again(self.board, workload=workload, solving=self._solving, clock=clock)
        self._writing = Writing(
            self.board,
            settings,
            workload=workload,
            minimise=minimise,
            solving=self._solving,
            again=self._again,
            clock=clock,
            say=self._say,
        )

    def run(self) -> list[Tried]:
        """Searches for the best plan; the candidates in their order, with what was learnt of them."""
        return self._run(first=True)

    def further(self, wanted: int, clock: Clock) -> list[Tried]:
        """Searches on until another time is over, for so many plans: what is known already stays."""
        self._clock.until(clock)
        self.board.top_k = wanted
        for one in self._excused:
            one.why = ""
        return self._run(first=False)

    def _run(self, *, first: bool) -> list[Tried]:
        board = self.board
        is_first = first
        for number in range(ROUNDS):
            waits = self._solving.waits
            if number and not waits and self._settings.left_out and len(board.ranked) >= board.top_k:
                break
            todo = board.open(again=number > 0, in_s=self._clock.left_s * self._solving.share)
            if not (todo or waits) or (self._clock.over and number):
                break
            self._solving.solve(todo, self._writing.meanwhile)
            if is_first and not self._solving.waits:
                self._again.loosen()
                is_first = False
            for _ in range(BETTER):
                self._writing.write()
                board.doubt(self._again.cost_of)
            if self._solving.waits:
                self._writing.write_runners_up()
        if is_first:
            self._again.loosen()
        self._writing.write()  # what was found beside the last plans
        self._writing.write_runners_up()
        self._writing.write_near()
        board.doubt(self._again.cost_of)
        board.forget()
        if not (board.ranked or board.bound_s == math.inf):
            self._writing.write_simple()
        self._writing.shorten()
        board.doubt(self._again.cost_of)
        board.settle()
        self._excused = [one for one in board.tried if not one.why and one.priced is None]
        for one in self._excused:
            one.why = why_not(one, board.written_s)
        return list(board.every)

    def least(self, clock: Clock) -> PricedPlan | None:
        """Of the plans that are found not to fit the one that takes least memory, which is looked for of the candidates
        that promise most: those of which least was seen on the way into the limit, else those whose arguments take
        least, which compute most anew. What was seen is written first: looking may take all of the time but for a part,
        which is left to write what it finds.
        """
        self._writing.write_least(clock)
        if not clock.over:
            self._again.lower(_lowered(self.board.tried), clock.part(LOWERING))
            self._writing.write_least(self._clock if clock.over else clock)  # what came late is not lost
        return self.board.least_beyond

    def by_hand(self) -> PricedPlan | None:
        """A plan laid out by hand, of the candidate that promises to take least memory of those that have one; it may
        fit. Of a small step whatever the time.
        """
        plans = (self._writing.by_hand(one.candidate) for one in sorted(self.board.tried, key=_least_promised))
        return next((plan for plan in plans if plan is not None), None)

    def _say(self, doing: str) -> None:
        if self._on_progress is not None:
            board = self.board
            settled = sum(1 for one in board.tried if one.solved or one.bound_s >= board.worth_s)
            self._on_progress(
                Progress(
                    doing=doing,
                    tried=settled,
                    total=len(board.tried),
                    best_s=board.best_s,
                    bound_s=board.bound_s,
                    elapsed_s=self._clock.elapsed_s,
                    left_s=self._clock.left_s,
                )
            )


def _lowered(tried: Sequence[Tried]) -> list[Tried]:
    """The candidates of which what takes least memory is looked for: the most promising on whose mesh all choices are
    looked at in no time, and one of its policy that is quicker, or the next.
    """
    several = sorted(tried, key=lambda one: (one.num_axes > FEW_AXES, *_least_promised(one)))
    quicker = [
        one
        for one in several
        if one.num_axes < several[0].num_axes and one.candidate.policy == several[0].candidate.policy
    ]
    return [*several[:1], *quicker, *several[1:]][:LOWERED]


def _least_promised(one: Tried) -> tuple[bool, int, int, int]:
    """What is small where a candidate promises to take little memory."""
    candidate, is_known = one.candidate, bool(one.least) and not one.infeasible
    known_bytes = one.least_bytes if is_known else candidate.least_bytes
    return not is_known, known_bytes, ANEW.get(candidate.remat, len(ANEW)), -one.num_axes


def _first_bound(candidate: Candidate, settings: Settings) -> float:
    """What is known of a candidate before it is solved."""
    too_large = settings.limit_bytes is not None and candidate.least_bytes > settings.limit_bytes
    return math.inf if too_large else candidate.floor_s
