"""Solves candidates, the best bound first, and prices what they give, until no other one can be better.

Two rounds take turns: candidates are solved, each below the best that is known; the best layouts are written as plans
and priced. What is solved when, and below which cutoff, depends on the order of the candidates alone and not on which
worker is quicker, so that two searches never differ unless the time ends them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Protocol

from ...dsl.errors import PlanError
from ...dsl.plan import Limits, Plan
from ..estimate.figures import Estimate
from ..graph import Sharding
from ..topology import Machine
from .candidates import Candidate
from .naming import Laid, readable
from .pool import PATIENCE_S, Pool
from .progress import Clock, Progress
from .result import PricedPlan
from .simple import argument_bytes, simple_layouts
from .task import Found, Task
from .tried import CLOSE, Tried, why_not
from .workload import Rematerialised, Workload

SOLVING, SOLVING_LARGE = 0.5, 0.75  # of the time at most, of that for large steps; the rest writes plans
FINISHING_S = 7e-4  # for each operation: what a plan takes that is written after its deadline
ROUNDS = 4
AGAIN = 1e-2  # by how much a candidate that was cut off must be able to be better to be solved once more
LOWERINGS = 4  # of the limit, where a plan takes more memory than its layouts promised
LOOK_EVERY_S = 0.1
HASTE = 0.2  # of the time so far at most: how long to wait for a worker that was asked to stop
LARGE = 5000  # operations: to price a plan of a step with more takes seconds
BY_HAND = "laid out by hand: the batch split, or the state with it"


class Written(Protocol):
    """A plan with its price."""

    @property
    def plan(self) -> Plan:
        """The plan."""

    @property
    def estimate(self) -> Estimate:
        """What it takes."""


Minimise = Callable[..., Written]
"""``minimise(layouts, plan, workload, deadline=..., exact=...)``: the plan with these layouts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a search is asked for. ``kept`` are the axes that keep their names; ``limit_bytes`` None: no limit."""

    machine: Machine
    limit_bytes: int | None
    seed: int = 0
    exact: bool = False
    top_k: int = 1
    kept: frozenset[str] = frozenset()


class Driver:
    """A search over candidates."""

    def __init__(
        self,
        candidates: Sequence[Candidate],
        settings: Settings,
        *,
        workload: Workload,
        pool: Pool,
        minimise: Minimise,
        clock: Clock,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.tried = [Tried(candidate=c, bound_s=_first_bound(c, settings), floor_s=c.floor_s) for c in candidates]
        self._settings, self._workload, self._pool, self._minimise = settings, workload, pool, minimise
        self._clock, self._on_progress = clock, on_progress
        self._doubts = 0
        self._simple: list[Tried] = []
        self._num_ops = 0
        self._writing_s = 0.0  # what it took to write and price one plan
        self._reading_s: dict[int, float] = {}  # what it took to read the step, by policy
        self._credit_s = 0.0

    def run(self) -> list[Tried]:
        """Searches; the candidates in their order, with what was learnt of them."""
        for number in range(ROUNDS):
            todo = [one for one in self.tried if self._is_open(one, AGAIN if number else CLOSE)]
            if not todo or (self._clock.over and number):
                break
            self._solve(todo)
            self._write()
            self._doubt()
        if not (self.ranked or self.bound_s == math.inf):
            self._write_simple()
        for one in self.tried:
            if not one.why and one.priced is None:
                one.why = why_not(one, self.worth_s)
        return [*self.tried, *self._simple]

    @property
    def best(self) -> Tried | None:
        """The one with the best plan."""
        return self.ranked[0] if self.ranked else None

    @property
    def ranked(self) -> list[Tried]:
        """Those with a plan, the best first."""
        found = [one for one in (*self.tried, *self._simple) if one.priced is not None]
        return sorted(found, key=lambda one: (one.step_time_s, one.candidate.index))

    @property
    def bound_s(self) -> float:
        """What no plan of the candidates takes less than; infinite where none has a plan."""
        return min((one.bound_s for one in self.tried), default=math.inf)

    @property
    def worth_s(self) -> float:
        """What a candidate has to take less than to be of interest."""
        values = sorted(one.value_s for one in (*self.tried, *self._simple))
        return values[self._settings.top_k - 1] if len(values) >= self._settings.top_k else math.inf

    def _is_too_long_to_read(self, one: Tried, clock: Clock) -> bool:
        """Whether the step under another policy is not to be read in what is left of the time."""
        longest_s = max(self._reading_s.values(), default=0.0)
        return one.candidate.policy not in self._reading_s and longest_s > clock.left_s

    @property
    def _is_small(self) -> bool:
        """Whether the step was read, and is priced in no time."""
        return 0 < self._num_ops <= LARGE

    def _is_open(self, one: Tried, margin: float) -> bool:
        """Whether solving a candidate (again) may give a better plan by this margin."""
        return one.cutoff_s < self.worth_s and one.bound_s < self.worth_s * (1 - margin)

    def _solve(self, todo: Sequence[Tried]) -> None:
        """Solves candidates, each below the best of those that ended before it could begin."""
        clock = self._clock.part(SOLVING)
        left = list(todo)
        flying: deque[tuple[Tried, Future[Found]]] = deque()
        while left:
            while len(flying) >= self._pool.workers:
                if self._is_small:
                    self._write_simple()
                self._land(*flying.popleft(), clock)
            one = min(left, key=self._turn)
            left.remove(one)
            if self._clock.over or (clock.over and any(other.cutoff_s > -math.inf for other in self.tried)):
                break
            if one.bound_s >= self.worth_s * (1 - CLOSE) or self._is_too_long_to_read(one, clock):
                continue
            self._say(f"solving {one.candidate}")
            was_small = self._is_small
            self._begin(one, flying, clock.left_s * (0.5 if left else 1.0))
            if was_small and not self._is_small:
                clock = clock.part(SOLVING_LARGE)
        if self._is_small:
            self._write_simple()
        while flying:
            self._land(*flying.popleft(), clock)

    def _write_simple(self) -> None:
        """Prices what teams write by hand on the first mesh, while the first candidates are being solved.

        Nothing found is ever worse, and something is at hand whenever the time ends. Policies that recompute more are
        tried only where nothing fits without. Of large steps they are priced only where nothing else was found.
        """
        if self._simple or not self.tried:
            return
        first = self.tried[0].candidate
        for one in [one.candidate for one in self.tried if one.candidate.plan.mesh is first.plan.mesh]:
            if any(simple.priced for simple in self._simple) or (self._clock.over and not self._is_small):
                return
            self._say(f"pricing simple plans of {one}")
            tensors = self._workload.tensors_under(one.plan.remat)
            sizes = {name: size or 1 for name, size in one.plan.mesh.sizes.items()}
            limit = self._settings.limit_bytes
            for layouts in simple_layouts(tensors, one.pins, sizes):
                if limit is None or argument_bytes(tensors, layouts, sizes) <= limit:
                    self._simple.append(self._simple_plan(one, layouts))

    def _simple_plan(self, candidate: Candidate, layouts: Mapping[str, Sharding]) -> Tried:
        """A candidate that is not to be solved, with the plan of these layouts if it fits."""
        one = Tried(candidate=candidate, bound_s=math.inf, cutoff_s=math.inf, solved=True, layouts=layouts, why=BY_HAND)
        begin_s = self._clock.elapsed_s
        try:
            written = self._written(one, deadline=0.0)
        except PlanError:
            return one
        self._writing_s = max(self._writing_s, self._clock.elapsed_s - begin_s)
        excess = written.estimate.peak_bytes - (self._settings.limit_bytes or math.inf)
        if excess <= 0:
            one.priced = PricedPlan(plan=written.plan, estimate=written.estimate)
        else:
            one.why = f"{BY_HAND}: {int(excess):,} bytes more than the limit"
        return one

    def _turn(self, one: Tried) -> tuple[int, int, int]:
        """When a candidate's turn is: policies that did not fit elsewhere come late; once the one that recomputes
        nothing is known to fit, those that recompute more wait for it.
        """
        policy = one.candidate.policy
        without = (other for other in self.tried if other.candidate.policy == policy and not other.layouts)
        misfits = sum(1 for other in without if other.infeasible or other.solved)
        fits = any(other.layouts and other.candidate.policy == 0 for other in self.tried)
        return misfits, policy if fits else 0, one.candidate.index

    def _begin(self, one: Tried, flying: deque[tuple[Tried, Future[Found]]], time_limit_s: float) -> None:
        """Gives a candidate to a worker, unless what the model assigns in place is impossible on its mesh."""
        one.cutoff_s = self.worth_s
        begin_s = self._clock.elapsed_s
        try:
            task = self._task(one, time_limit_s)
        except PlanError as error:
            one.solved, one.bound_s, one.why = (
                True,
                math.inf,
                str(error.problems[0].message if error.problems else error),
            )
            return
        self._reading_s[one.candidate.policy] = self._clock.elapsed_s - begin_s
        self._num_ops = self._num_ops or sum(1 for _ in task.graph.walk())
        flying.append((one, self._pool.submit(task)))

    def _task(self, one: Tried, time_limit_s: float, lowered_bytes: int = 0) -> Task:
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
            cutoff_s=one.cutoff_s + self._credit_s if not lowered_bytes else math.inf,
        )

    def _land(self, one: Tried, future: Future[Found], clock: Clock) -> None:
        """Waits for an answer and learns from it."""
        found = self._answer(future, clock)
        one.solved = True
        if found is None:
            one.why = "the time was over"
            return
        # What is not to be had below a cutoff may be had above it.
        self._credit_s = max(self._credit_s, found.credit_s)
        less_s = 0.0 if found.layouts else self._credit_s  # what was not priced may take less, as others did
        bounds_s = [found.bound_s - less_s, found.floor_s - less_s, 0.0]
        if found.status == "infeasible":
            bounds_s = [math.inf] * 3
        one.floor_s = max(one.candidate.floor_s, min(bounds_s[max(self._doubts, 1)], one.cutoff_s))
        one.bound_s = max(one.bound_s, min(bounds_s[self._doubts], one.cutoff_s))
        if found.layouts and found.objective_s < one.objective_s:
            one.objective_s, one.layouts = found.objective_s, found.layouts
        self._say(f"solved {one.candidate}")

    def _answer(self, future: Future[Found], clock: Clock) -> Found | None:
        asked_s = math.inf
        while not _is_done(future, LOOK_EVERY_S):
            self._say("")
            if clock.over and asked_s == math.inf:
                self._pool.hurry()
                asked_s = clock.elapsed_s
            if clock.elapsed_s > asked_s + min(PATIENCE_S, HASTE * self._clock.elapsed_s):
                return None
        return future.result()

    def _write(self) -> None:
        """Writes and prices layouts as plans, the cheapest first, until the others cost more than the best plans."""
        left = [one for one in self.tried if one.layouts and one.priced is None and not one.why]
        for one in sorted(left, key=lambda one: (one.objective_s, one.candidate.index)):
            prices = [other.step_time_s for other in self.ranked[: self._settings.top_k]]
            enough = len(prices) >= self._settings.top_k and one.objective_s >= prices[-1]
            late = self._clock.over or self._clock.left_s < self._writing_s
            if enough or (late and prices):
                break
            self._say(f"writing the plan of {one.candidate}")
            self._write_one(one)

    def _write_one(self, one: Tried) -> None:
        """Writes the plan of a candidate's layouts; where it takes too much memory, of layouts that take less."""
        lowered = 0
        for _ in range(LOWERINGS):
            try:
                written = self._written(one)
            except PlanError as error:
                one.why = f"its layouts make no plan: {error.problems[0].message if error.problems else error}"
                return
            excess = written.estimate.peak_bytes - (self._settings.limit_bytes or math.inf)
            if excess <= 0:
                one.priced, one.why = PricedPlan(plan=written.plan, estimate=written.estimate), ""
                return
            one.why = f"its plan takes {int(excess):,} bytes more than the limit"
            if self._clock.over:
                return
            lowered += int(excess)
            found = self._answer(self._pool.submit(self._task(one, self._clock.left_s / 2, lowered)), self._clock)
            if found is None or not found.layouts:
                return
            one.objective_s, one.layouts = found.objective_s, found.layouts

    def _doubt(self) -> None:
        """Takes the programs' bounds back where a plan is below one: what they leave out matters on this step.

        First they fall to what kernels alone take, then to what no layouts can change.
        """
        bounds = {id(one.candidate): one for one in self.tried}
        for plan in self.ranked:
            told = bounds[id(plan.candidate)]
            if told.infeasible:  # and is not: the program counts more memory than there is
                told.bound_s = told.floor_s = told.candidate.floor_s
        while self._doubts < 2 and any(
            plan.step_time_s < bounds[id(plan.candidate)].bound_s * (1 - CLOSE) for plan in self.ranked
        ):
            self._doubts += 1
            for one in self.tried:
                if not one.infeasible:
                    one.bound_s = one.floor_s = one.floor_s if self._doubts == 1 else one.candidate.floor_s

    def _written(self, one: Tried, deadline: float | None = None) -> Written:
        settings, plan = self._settings, one.candidate.plan
        workload = Rematerialised(self._workload, plan.remat)
        laid = readable(Laid(mesh=plan.mesh, layouts=one.layouts), settings.machine, workload.tensors, settings.kept)
        open_plan = replace(plan, mesh=laid.mesh, limits=Limits(hbm_bytes=plan.limits.hbm_bytes), result=None)
        return self._minimise(
            laid.layouts,
            open_plan,
            workload,
            deadline=self._clock.end - FINISHING_S * self._num_ops if deadline is None else deadline,
            exact=settings.exact,
            promised_s=one.objective_s if math.isfinite(one.objective_s) else 0.0,
        )

    def _say(self, doing: str) -> None:
        if self._on_progress is not None:
            settled = sum(1 for one in self.tried if one.solved or one.bound_s >= self.worth_s)
            self._on_progress(
                Progress(
                    doing=doing,
                    tried=settled,
                    total=len(self.tried),
                    best_s=min((one.value_s for one in (*self.tried, *self._simple)), default=math.inf),
                    bound_s=self.bound_s,
                    elapsed_s=self._clock.elapsed_s,
                    left_s=self._clock.left_s,
                )
            )


def _first_bound(candidate: Candidate, settings: Settings) -> float:
    """What is known of a candidate before it is solved."""
    too_large = settings.limit_bytes is not None and candidate.least_argument_bytes > settings.limit_bytes
    return math.inf if too_large else candidate.floor_s


def _is_done(future: Future[Found], timeout_s: float) -> bool:
    try:
        future.exception(timeout_s)
    except TimeoutError:
        return False
    return True
