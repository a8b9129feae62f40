"""Writes and prices the layouts of candidates as plans."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

from ...dsl.errors import PlanError
from ...dsl.plan import Limits, Plan
from ..graph import Sharding
from .board import AGAIN, Board, Settings
from .candidates import Candidate
from .naming import Laid, readable
from .near_limit import NearLimit
from .progress import Clock
from .result import PricedPlan
from .simple import argument_bytes, simple_layouts
from .solving import Solving, beside
from .task import First, Near
from .tried import CLOSE, Tried
from .workload import Rematerialised, Workload
from .written import Minimise, Written

FINISHING_S = 5.5e-4  # for each operation: what a plan takes that is written after its deadline
LOWERINGS = 4  # of the limit, where a plan takes more memory than its layouts promised
SEVERAL = 2  # candidates solved, before the best is written while others are
READABLE = 3e-2
"""What a plan of a long step may take more that has few lines, and what another has to take less for it to be left."""

BROKEN = 1e-2  # how much more than its layouts cost a plan may take for nothing else to be written in its place
FEW_LINES, SHORTER = 15, 4  # what all can read, and how many times fewer lines than another has are few beside it
MOST_PRICED = 40  # times that a plan of many lines is priced without some of them
COMPUTED = "ops/"
GRACE_S = 0.7  # after the time is over: for the plans by hand of a small step, the first of which is always priced
BY_HAND = "laid out by hand: the batch split, the state with it or over an axis of its own, or nothing"


class _OvertakenError(Exception):
    """What is being written is not the best any more."""


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
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._board, self._settings, self._workload, self._minimise = board, settings, workload, minimise
        self._solving, self._clock, self._say = solving, clock, say
        self._ahead: dict[int, tuple[Tried, Mapping[str, Sharding], Written | None]] = {}  # written ahead of their turn
        self._firsts: dict[int, tuple[First, Written]] = {}  # written before they were proven
        self._least: dict[int, Mapping[str, Sharding]] = {}  # of least memory, written
        self._second: set[int] = set()  # the candidates of which the next layouts were written
        self._near_limit = NearLimit(board, self._near_plan)
        self._over_s: float | None = None  # when it was seen first that the time is over

    def write(self) -> None:
        """Writes and prices layouts as plans, the cheapest first, until the others cost more than the best plans."""
        left = [one for one in self._board.every if one.layouts and one.priced is None and not one.why]
        late = self._late  # what is written already comes first then

        def turn(one: Tried) -> tuple[bool, float, int]:
            return late and self._begun(one) is None, one.objective_s, one.candidate.index

        for one in sorted(left, key=turn):
            prices = [other.step_time_s for other in self._board.ranked[: self._board.top_k]]
            enough = len(prices) >= self._board.top_k and one.objective_s >= prices[-1]
            if enough or (self._late and prices and self._begun(one) is None):
                break
            self._say(f"writing the plan of {one.candidate}")
            self._write_one(one)

    def _write_one(self, one: Tried) -> None:
        """Writes the plan of a candidate's layouts; where it takes too much memory, of layouts that take less."""
        lowered = 0
        for _ in range(LOWERINGS):
            try:
                written = self._written(one, begun=self._begun(one))
            except PlanError as error:
                one.why = f"its layouts make no plan: {error.problems[0].message if error.problems else error}"
                return
            if self._is_written(one):
                self._ahead[one.candidate.index] = one, one.layouts, written
            excess = written.estimate.peak_bytes - (self._settings.limit_bytes or math.inf)
            if excess <= 0:
                self._keep(one, written)
                one.why = ""
                return
            one.why = f"its plan takes {int(excess):,} bytes more than the limit"
            _keep_beyond(one, written)
            lowered += int(excess)
            if self._clock.over or not self._solving.within(one, lowered):
                return

    def _keep(self, one: Tried, written: Written | PricedPlan) -> None:
        """Keeps a plan that fits; the time is kept for the compiler that one has to be asked about."""
        one.priced = PricedPlan(plan=written.plan, estimate=written.estimate)
        self._board.is_near = self._settings.is_near(written.estimate)
        if self._board.is_near:
            self._clock.found()

    def write_least(self, clock: Clock) -> None:
        """Writes the layouts of the least memory as plans, each once, until others promise to take more than one that
        was.
        """
        known = [
            one for one in self._board.every if one.least and self._least.get(one.candidate.index) is not one.least
        ]
        for one in sorted(known, key=lambda one: (one.least_bytes, one.candidate.index)):
            beyond = self._board.least_beyond
            if (beyond is not None and one.least_bytes >= beyond.peak_bytes) or clock.over:
                return
            self._say(f"writing what takes least memory of {one.candidate}")
            self._least[one.candidate.index] = one.least
            try:
                _keep_beyond(one, self._written(one, clock.end, of=(one.least, 0.0)))
            except PlanError:
                continue

    def write_second(self) -> None:
        """Writes the layouts that were next to a candidate's best, where the plan of these takes more than they cost,
        and more than the next: not all layouts are said by the names that a step has.
        """
        board = self._board
        for one in board.tried:
            is_short_of = one.priced is not None and one.step_time_s > one.objective_s * (1 + BROKEN)
            is_known = one.candidate.index in self._second
            if is_short_of and not is_known and one.second_s < board.written_s * (1 - CLOSE) and not self._late:
                self._second.add(one.candidate.index)
                self._say(f"writing the next plan of {one.candidate}")
                board.by_hand.append(found := beside(one.candidate, one.second_s, one.second))
                self._write_one(found)

    def write_near(self) -> None:
        """Keeps the plans of layouts that take a little more memory than the limit, where these fit and are better."""
        for found, priced in self._near_limit.plans():
            self._keep(found, priced)
            self._board.by_hand.append(found)

    def _near_plan(self, one: Tried, near: Near, limits: Limits) -> PricedPlan | None:
        """The plan of layouts, written as if there were these limits, if it fits; else it is kept as one beyond."""
        if self._late:
            return None
        self._say(f"writing a plan of {one.candidate} that may fit")
        with suppress(PlanError):
            written = self._written(one, of=(near.layouts, near.seconds), limits=limits)
            plan = replace(written.plan, limits=one.candidate.plan.limits)
            found = PricedPlan(plan=plan, estimate=self._workload.estimate(plan))
            if found.peak_bytes <= (self._settings.limit_bytes or math.inf):
                return found
            _keep_beyond(one, found)
        return None

    def meanwhile(self) -> None:
        """What there is to write while candidates are being solved: of long steps the best layouts so far."""
        if not self._board.is_large:
            self.write_simple()
        while self._board.is_large and self._write_ahead():
            pass
        while self._write_first():
            pass

    def _write_first(self) -> bool:
        """Writes what was found first of a candidate that is solved alone, while it is proven, for when it is its turn;
        left where something better is found: whether that is so. Whether there was time for it changes nothing of the
        plan.
        """
        found = self._solving.first()
        if found is None or self._late:
            return False
        one, first = found
        if one.priced or self._is_written(one) or first.objective_s >= self._board.worth_s:
            return False

        def look() -> None:
            self._solving.tend()
            is_best = self._solving.is_told(one, first) if self._solving.solves(one) else _is_of(first, one)
            if self._clock.stopped or not is_best:
                raise _OvertakenError

        self._say(f"writing the plan of {one.candidate}")
        with suppress(_OvertakenError, PlanError):  # of which it is told when it is its turn
            written = self._written(one, before=look, of=(first.layouts, first.objective_s), proven_s=0.0)
            self._firsts[one.candidate.index] = first, written
        return not self._clock.stopped and self._solving.solves(one)

    def _write_ahead(self) -> bool:
        """Writes the best layouts so far, for when it is their turn; whether better ones came and it was left."""
        one = self._leader
        if one is None or self._clock.stopped or self._is_written(one) or (self._ahead and self._late):
            return False
        layouts, objective_s = one.layouts, one.objective_s

        def look() -> None:
            self._solving.tend()
            leader = self._leader
            is_left = leader is None or leader.objective_s < objective_s * (1 - READABLE)
            if self._clock.stopped or is_left or one.layouts is not layouts:
                raise _OvertakenError

        self._say(f"writing the plan of {one.candidate}")
        try:
            written = self._written(one, before=look, proven_s=0.0)
            self._ahead[one.candidate.index] = one, layouts, written
            self._board.is_near = self._settings.is_near(written.estimate)
        except _OvertakenError:
            return True
        except PlanError:
            self._ahead[one.candidate.index] = one, layouts, None  # which it is told of when it is its turn
        return self._leader is not one

    def _is_written(self, one: Tried) -> bool:
        known = self._ahead.get(one.candidate.index)
        return known is not None and known[1] is one.layouts

    def _begun(self, one: Tried) -> Written | None:
        """What was written of its layouts before anything was proven."""
        first = self._firsts.get(one.candidate.index)
        if first is not None and _is_of(first[0], one):
            return first[1]
        return self._ahead[one.candidate.index][2] if self._is_written(one) else None

    def prefer_readable(self) -> None:
        """Gives up a best plan of many lines for one of few that takes little longer, where such a one was written."""
        board, settings = self._board, self._settings
        best = next(iter(board.ranked), None)
        if best is None or best.priced is None or settings.exact or settings.top_k > 1:
            return
        took_s, lines = best.step_time_s, len(best.priced.plan.rules)
        short = [
            (priced.step_time_s, one.candidate.index, one, priced)
            for one, priced in self._all_ahead()
            if priced.step_time_s <= took_s * (1 + READABLE)
            and len(priced.plan.rules) <= max(FEW_LINES, lines // SHORTER)
        ]
        if lines > FEW_LINES and short:
            seconds, _, one, priced = min(short)
            best.priced, best.why = None, f"its plan has {lines} lines, and takes {1 - took_s / seconds:.1%} less"
            one.priced, one.why = priced, ""

    def shorten(self) -> None:
        """Leaves those lines on computed values out of a best plan of many lines without which it takes no longer:
        half of them at once, and halves of what cannot go together, ``MOST_PRICED`` times in all. Of a plan that is
        proven to be nearly the best there is nothing to gain.
        """
        board, settings = self._board, self._settings
        best = next(iter(board.ranked), None)
        if best is None or best.priced is None or settings.exact or settings.top_k > 1 or board.is_large:
            return
        if board.bound_s >= best.step_time_s * (1 - AGAIN):
            return
        asked = {rule.pattern for rule in best.candidate.plan.rules}
        rules = best.priced.plan.rules
        left = [rule for rule in rules if rule.pattern.startswith(COMPUTED) and rule.pattern not in asked]
        waiting = [left] if len(rules) > FEW_LINES else []
        for _ in range(MOST_PRICED):
            if not waiting or self._clock.over or self._clock.left_s < self._board.writing_s:
                break
            several = waiting.pop(0)
            kept = tuple(rule for rule in best.priced.plan.rules if rule not in several)
            shorter = self._priced(replace(best.priced.plan, rules=kept))
            if shorter is not None and shorter.step_time_s <= best.step_time_s:
                best.priced = shorter
            elif len(several) > 1:
                half = len(several) // 2
                waiting += [several[half:], several[:half]]

    def _priced(self, plan: Plan) -> PricedPlan | None:
        """A plan with its price; None where it is none, or takes more memory than it may."""
        try:
            found = PricedPlan(plan=plan, estimate=self._workload.estimate(plan))
        except PlanError:
            return None
        return found if found.peak_bytes <= (self._settings.limit_bytes or math.inf) else None

    def _all_ahead(self) -> Iterator[tuple[Tried, PricedPlan]]:
        """The plans written ahead that fit."""
        most_bytes = self._settings.limit_bytes or math.inf
        for one, layouts, written in self._ahead.values():
            if written is not None and one.layouts is layouts and written.estimate.peak_bytes <= most_bytes:
                yield one, PricedPlan(plan=written.plan, estimate=written.estimate)

    @property
    def _leader(self) -> Tried | None:
        """The best of those solved, once there are several."""
        tried = self._board.tried
        found = [one for one in tried if one.layouts and one.priced is None and not one.why]
        several = sum(1 for one in tried if one.solved) >= SEVERAL
        return min(found, key=lambda one: (one.objective_s, one.candidate.index), default=None) if several else None

    def write_simple(self) -> None:
        """Prices what teams write by hand on the first mesh, while the first candidates are being solved.

        Nothing found is ever worse, and something is at hand whenever the time ends. Policies that recompute more are
        tried only where nothing fits without. Of large steps they are priced only where nothing else was found.
        """
        board = self._board
        if board.by_hand or not board.tried:
            return
        first = board.tried[0].candidate
        for one in [one.candidate for one in board.tried if one.candidate.plan.mesh is first.plan.mesh]:
            if any(simple.priced for simple in board.by_hand):
                return
            self._say(f"pricing simple plans of {one}")
            tensors = self._workload.tensors_under(one.plan.remat)
            sizes = {name: size or 1 for name, size in one.plan.mesh.sizes.items()}
            limit = self._settings.limit_bytes
            for _, layouts in simple_layouts(tensors, one.pins, sizes):
                if not self._is_in_grace:
                    return
                alone_s = 0.0 if any(map(any, layouts.values())) else one.floor_s * math.prod(sizes.values())
                if alone_s < board.best_s and (limit is None or argument_bytes(tensors, layouts, sizes) <= limit):
                    board.by_hand.append(self._simple_plan(one, layouts))

    def by_hand(self, candidate: Candidate) -> PricedPlan | None:
        """The plan laid out by hand whose arguments take least, priced whether it fits or not; None of a large step
        when the time is over.
        """
        if self._clock.over and self._board.is_large:
            return None
        tensors = self._workload.tensors_under(candidate.plan.remat)
        sizes = {name: size or 1 for name, size in candidate.plan.mesh.sizes.items()}
        several = (layouts for _, layouts in simple_layouts(tensors, candidate.pins, sizes))
        one = self._simple_plan(candidate, min(several, key=lambda own: argument_bytes(tensors, own, sizes)))
        return one.priced or one.beyond

    def _simple_plan(self, candidate: Candidate, layouts: Mapping[str, Sharding]) -> Tried:
        """A candidate that is not to be solved, with the plan of these layouts if it fits."""
        one = Tried(candidate=candidate, bound_s=math.inf, cutoff_s=math.inf, solved=True, layouts=layouts, why=BY_HAND)
        try:
            written = self._written(one, deadline=0.0)
        except PlanError:
            return one
        excess = written.estimate.peak_bytes - (self._settings.limit_bytes or math.inf)
        if excess <= 0:
            self._keep(one, written)
        else:
            one.why = f"{BY_HAND}: {int(excess):,} bytes more than the limit"
            _keep_beyond(one, written)
        return one

    def _written(
        self,
        one: Tried,
        deadline: float | None = None,
        before: Callable[[], None] = lambda: None,
        of: tuple[Mapping[str, Sharding], float] | None = None,
        begun: Written | None = None,
        proven_s: float | None = None,
        limits: Limits | None = None,
    ) -> Written:
        """The plan of a candidate's layouts, or ``of`` others on its mesh and what they are promised to take (0 where
        that is not known); ``begun`` was written of them before anything was proven (``proven_s``: 0). ``limits`` are
        those of the candidate's plan, if no other ones.
        """
        settings, plan = self._settings, one.candidate.plan
        workload = Rematerialised(self._workload, plan.remat, before)
        layouts, promised_s = of or (one.layouts, one.objective_s)
        proven_s = self._board.bound_s if proven_s is None else proven_s
        laid = readable(Laid(mesh=plan.mesh, layouts=layouts), settings.machine, workload.tensors, settings.kept)
        open_plan = replace(
            plan, mesh=laid.mesh, limits=Limits(hbm_bytes=(limits or plan.limits).hbm_bytes), result=None
        )
        begin_s = self._clock.elapsed_s
        written = self._minimise(
            laid.layouts,
            open_plan,
            workload,
            deadline=self._clock.end - FINISHING_S * self._board.num_ops if deadline is None else deadline,
            exact=settings.exact,
            promised_s=promised_s if math.isfinite(promised_s) else 0.0,
            proven_s=proven_s if math.isfinite(proven_s) else 0.0,
            begun=begun,
        )
        self._board.writing_s = max(self._board.writing_s, self._clock.elapsed_s - begin_s)
        return written

    @property
    def _late(self) -> bool:
        """Whether there is no time for another plan."""
        return self._clock.over or self._clock.left_s < self._board.writing_s

    @property
    def _is_in_grace(self) -> bool:
        """Whether one more plan may be priced that is laid out by hand: of a small step also soon after the end."""
        if not self._clock.over:
            return True
        self._over_s = self._clock.elapsed_s if self._over_s is None else self._over_s
        gone_s = self._clock.elapsed_s - self._over_s
        return not self._board.is_large and (not self._board.by_hand or gone_s + self._board.writing_s <= GRACE_S)


def _is_of(first: First, one: Tried) -> bool:
    """Whether what was found first of a candidate is the best of it."""
    return one.objective_s == first.objective_s and one.layouts == first.layouts


def _keep_beyond(one: Tried, written: Written | PricedPlan) -> None:
    """Keeps a plan that takes too much, if no other of the candidate takes less."""
    if one.beyond is None or written.estimate.peak_bytes < one.beyond.peak_bytes:
        one.beyond = PricedPlan(plan=written.plan, estimate=written.estimate)
