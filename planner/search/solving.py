"""Has candidates solved, each below the best of those that ended before it could begin."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import NamedTuple

from ...dsl.errors import PlanError
from .alike import AXES, Alike
from .board import Board, Settings
from .bounding import Bounding
from .pool import PATIENCE_S, Pool
from .progress import Clock
from .task import First, Found, Task
from .tried import CLOSE, Tried, beside
from .workload import Workload

LOOK_EVERY_S = 0.1
HASTE = 0.2  # of the time so far at most: how long to wait for a worker that was asked to stop
LAST_S = 0.5  # the same where there is a plan already
LONGEST = 1.25  # times as long is solved, as long as nothing is found, and bounded
WRITING = 1.5  # times as long as a plan took to be written: what is kept for another
FOR_ONE = 0.5  # of the time for one of several candidates at most
FOR_FIRST = 0.75  # the same as long as nothing is found of a large step

Firsts = SimpleQueue[First | None]


class Flying(NamedTuple):
    """What a worker is given: a candidate, or what ``several`` like it take at least."""

    one: Tried
    future: Future[Found]
    several: Alike | None = None


class Solving:
    """Gives candidates to workers. What is solved when, and below which cutoff, depends on their order alone."""

    def __init__(
        self,
        board: Board,
        settings: Settings,
        *,
        workload: Workload,
        pool: Pool,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._board, self._settings, self._workload, self._pool = board, settings, workload, pool
        self._clock, self._say = clock, say
        self._reading_s: dict[int, float] = {}  # what it took to read the step, by policy
        self._part = self._whole = self._longest = clock
        self._left: list[Tried] = []
        self._flying: deque[Flying] = deque()
        self._firsts: Firsts = SimpleQueue()  # what was found first of the candidate that was begun last
        self._told: dict[int, First] = {}
        self._bounding = Bounding(board=board, workers=pool.workers)
        self.waits = self._waited = False  # for the best to be written, which it did once

    def solve(self, todo: Sequence[Tried], meanwhile: Callable[[], None]) -> None:
        """Solves candidates; ``meanwhile`` is done while the workers are at it, and may ``tend`` to them."""
        self._waited |= self.waits
        share, self.waits = self.share, False
        self._part = self._clock.part(share, as_found=True)
        self._whole = self._clock.part(share)
        self._longest, self._left = self._clock.part(min(LONGEST * share, 1.0)), list(todo)
        self._bounding.begin()
        self._fill()
        while self._flying:
            meanwhile()
            if self._flying:
                self._land(self._flying.popleft())
            self._fill()
        self._left = []

    def tend(self) -> None:
        """Takes the answers that are there and gives the workers more, without waiting; ends them with their time.

        All but one of large steps: who tends to them meanwhile needs a core as well.
        """
        if self._time.over:
            self._pool.hurry()
        while self._flying and self._flying[0].future.done():
            self._land(self._flying.popleft())
            self._fill(max(self._pool.workers - 1, 1) if self._board.is_large else None)

    def first(self) -> tuple[Tried, First] | None:
        """The best that is told of a candidate that is solved alone, waited for as long as nothing is proven; None
        where nothing is found before, or nothing better than what this gave before.
        """
        if self._left or len(self._flying) != 1:
            return None
        one, future, several = self._flying[0]
        if several is not None:
            return None
        while not (future.done() or self._time.over):
            with suppress(Empty):
                found = self._firsts.get(timeout=LOOK_EVERY_S)
                if found is None:
                    return None
                if self.is_told(one, found):
                    return one, found
                continue
            self._wait()
        return None

    def is_told(self, one: Tried, first: First) -> bool:
        """Whether nothing better was told of a candidate."""
        return self._told.get(one.candidate.index) is first

    def solves(self, one: Tried) -> bool:
        """Whether a candidate is being solved."""
        return any(other is one and several is None for other, _, several in self._flying)

    def _fill(self, workers: int | None = None) -> None:
        """Gives every worker a candidate, or so many of them, as long as there is time."""
        most = self._pool.workers if workers is None else workers
        while len(self._flying) < most:
            one = min(self._left, key=self._turn, default=None)
            bounded = sum(several is not None for _, _, several in self._flying)
            left_s, bounding = 0.0 if self._time.over else self._time.left_s, self._bounding
            several = bounding.last(bounded, left_s) if one is None else bounding.before(one, left_s)
            self._wait_to_write(one, several)
            if several is not None and not self.waits:
                self._bound(several)
                continue
            if self.waits or one is None or self._is_bounded(one):
                break
            self._left.remove(one)
            begun = any(other.cutoff_s > -math.inf for other in self._board.tried)
            if self._clock.over or (self._time.over and begun):
                self._left = []
            elif one.bound_s < self._board.worth_s * (1 - CLOSE) and self._is_in_time(one):
                self._say(f"solving {one.candidate}")
                is_written = bool(self._board.ranked)
                share = FOR_FIRST if self._board.is_large and not is_written else FOR_ONE
                time = self._time if is_written or not self._is_found else self._whole
                self._begin(one, time.left_s * (share if self._left else 1.0))

    def _wait_to_write(self, one: Tried | None, several: Alike | None) -> None:
        """Once, before what takes long is asked for: that has to be better than a plan then, and not than a promise."""
        is_long = several is not None or (one is not None and one.num_axes >= AXES)
        self.waits = is_long and not self._waited and self._board.best_s < math.inf and not self._board.is_written

    def _turn(self, one: Tried) -> tuple[bool, int, int, int]:
        """When a candidate's turn is: those that are being bounded come last, and policies that did not fit elsewhere
        late; once the one that recomputes nothing is known to fit, those that recompute more wait for it.
        """
        policy, tried = one.candidate.policy, self._board.tried
        without = (other for other in tried if other.candidate.policy == policy and not other.layouts)
        misfits = sum(1 for other in without if other.infeasible or other.solved)
        fits = any(other.layouts and other.candidate.policy == 0 for other in tried)
        return self._is_bounded(one), misfits, policy if fits else 0, one.candidate.index

    def _is_bounded(self, one: Tried) -> bool:
        """Whether a candidate is being bounded with others: it may be that it need not be solved."""
        return any(several is not None and one in several.members for _, _, several in self._flying)

    def _bound(self, several: Alike) -> None:
        """Has what several candidates take at least looked for."""
        self._say(f"bounding {several}")
        own = self.task(several.like, self._longest.left_s)
        task = self._bounding.task(several, own)
        self._flying.append(Flying(several.like, self._pool.submit(task), several))

    def _is_in_time(self, one: Tried) -> bool:
        """Whether what is left of the time is enough to read the step under the candidate's policy; and to solve it
        and write its plan, where others were solved and written.
        """
        if (
            one.candidate.policy not in self._reading_s
            and max(self._reading_s.values(), default=0.0) > self._time.left_s
        ):
            return False
        board = self._board
        is_known = any(other.priced for other in board.tried)
        return not is_known or board.expected_s(one) + board.writing_s <= self._clock.left_s

    def _begin(self, one: Tried, time_limit_s: float) -> None:
        """Gives a candidate to a worker, unless what the model assigns in place is impossible on its mesh."""
        one.cutoff_s, one.given_s = self._board.worth_s, time_limit_s
        begin_s = self._clock.elapsed_s
        try:
            task = self.task(one, time_limit_s)
        except PlanError as error:
            one.solved, one.bound_s, one.given_s = True, math.inf, math.inf
            one.why = str(error.problems[0].message if error.problems else error)
            return
        self._reading_s[one.candidate.policy] = self._clock.elapsed_s - begin_s
        self._firsts = firsts = Firsts()

        def hear(first: First) -> None:
            self._told[one.candidate.index] = first  # what is told later is better
            firsts.put(first)

        future = self._pool.submit(task, hear)
        future.add_done_callback(lambda _: firsts.put(None))
        self._flying.append(Flying(one, future))

    def task(self, one: Tried, time_limit_s: float, lowered_bytes: int = 0) -> Task:
        """What is asked of a candidate, with so many bytes less than the limit."""
        limit = self._settings.limit_bytes
        return Task(
            graph=self._workload.graph(one.candidate.plan),
            mesh=one.candidate.plan.mesh,
            machine=self._settings.machine,
            returned=one.candidate.returned,
            pins=one.candidate.pins,
            limit_bytes=None if limit is None else limit - lowered_bytes,
            time_limit_s=time_limit_s,
            seed=self._settings.seed,
            cutoff_s=one.cutoff_s * (1 + self._board.credit) if not lowered_bytes else math.inf,
            alone=not self._left and not self._flying,
            doubted=not lowered_bytes and self._board.is_doubted(one),
            partly=self._bounding.is_enough(one, time_limit_s),
        )

    def _land(self, flying: Flying) -> None:
        """Waits for an answer and learns from it."""
        one, future, several = flying
        if several is not None:
            self._bounding.learn(several, self.answer(future, self._longest))
            self._say(f"bounded {several}")
            return
        found = self.answer(future)
        one.solved = True
        if found is None:
            told = self._told.get(one.candidate.index)
            if told is not None and told.objective_s < one.objective_s:
                one.objective_s, one.layouts = told.objective_s, told.layouts
            elif not one.layouts:
                one.why = "the time was over"
            return
        one.given_s = one.given_s if found.ended else math.inf
        one.keep_least(found)
        one.near = (*one.near, *found.near)
        one.runners_up, one.inside = found.runners_up, found.inside
        board, axes = self._board, one.num_axes
        self._bounding.note(one, found.took_s)
        board.solving_s[axes] = max(board.solving_s.get(axes, 0.0), found.took_s)
        board.least_s[one.candidate.policy] = found.least_s
        # What is not to be had below a cutoff may be had above it.
        if found.layouts:
            board.credit = max(board.credit, found.credit_s / max(found.objective_s, math.ulp(0.0)))
        # What was not priced may take less, as others did.
        less_s = 0.0 if found.layouts else found.bound_s * board.credit / (1 + board.credit)
        one.credit_s = found.credit_s if found.layouts else less_s
        less_s += max(board.credit_s - one.credit_s, 0.0)
        one.credit_s = max(one.credit_s, board.credit_s)
        bounds_s = [found.bound_s - less_s, found.floor_s - less_s, 0.0]
        if found.status == "infeasible":
            bounds_s = [math.inf] * 3
        doubts = board.doubts
        one.floor_s = max(one.candidate.floor_s, min(bounds_s[max(doubts, 1)], one.cutoff_s))
        one.bound_s = max(one.bound_s, min(bounds_s[doubts], one.cutoff_s))
        if found.layouts and found.objective_s < one.objective_s:
            if one.priced or one.why:  # solved once more
                board.by_hand.append(beside(one.candidate, found.objective_s, found.layouts))
            else:
                one.objective_s, one.layouts = found.objective_s, found.layouts
        if found.anywhere:
            board.rule_out(one)
        self._say(f"solved {one.candidate}")

    @property
    def workers(self) -> int:
        """How many tasks are solved at once."""
        return self._pool.workers

    def submit(self, task: Task) -> Future[Found]:
        """Gives a task to a worker."""
        return self._pool.submit(task)

    def answer(self, future: Future[Found], clock: Clock | None = None) -> Found | None:
        """What a worker answers, who is asked to end with a time, or with that for solving."""
        asked_s = math.inf
        while not _is_done(future, LOOK_EVERY_S):
            self._wait()
            if (clock or self._time).over and asked_s == math.inf:
                self._pool.hurry()
                asked_s = self._clock.elapsed_s
            if self._clock.elapsed_s > asked_s + self._patience_s:
                return None
        return future.result()

    def _wait(self) -> None:
        """After each look in vain: says what is known, and excuses what compiling takes."""
        self._say("")
        if self._pool.compiling:
            self._clock.excuse(LOOK_EVERY_S)

    @property
    def _is_found(self) -> bool:
        """Whether there is something to write."""
        return bool(self._told) or self._board.best_s < math.inf

    @property
    def _time(self) -> Clock:
        """The time for solving: longer as long as nothing is found, and where the best is not near its limit, for then
        the compiler is not asked.
        """
        if not self._is_found:
            return self._longest
        return self._part if self._board.is_near else self._whole

    @property
    def share(self) -> float:
        """Of the time that is left, how much is solved in: once there are plans all but what it takes to write one and
        to learn what its layouts cost.
        """
        board, left_s = self._board, max(self._clock.left_s, math.ulp(0.0))
        if not board.is_written:
            return self._settings.solving
        learning_s = board.expected_s(board.ranked[0])
        return max(self._settings.solving, 1.0 - (WRITING * board.writing_s + learning_s) / left_s)

    @property
    def _patience_s(self) -> float:
        most_s = PATIENCE_S if math.isinf(self._board.best_s) else LAST_S if self._clock.over else PATIENCE_S
        return min(most_s, HASTE * self._clock.elapsed_s)


def _is_done(future: Future[Found], timeout_s: float) -> bool:
    try:
        future.exception(timeout_s)
    except TimeoutError:
        return False
    return True
