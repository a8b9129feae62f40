"""Finds the best of many combinations of settings, each of which is a step of its own that could be searched.

One is searched; its layouts price the others, which takes a fraction of a search; the one that is then best is searched
next. So it goes on until none is left that can be better, or the time is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from ...dsl.errors import PlanError
from ...dsl.plan import Plan
from ..explain.rows import binary
from .combination import LATE, Combination, Promise, message_of
from .progress import Clock, Progress
from .result import PricedPlan, SearchResult
from .tried import CLOSE

FIRST = 0.4  # of the time, for the first search
PRICING = 0.6  # of what is left, for pricing the others with the layouts that a search found
NEXT = 0.6  # of what is left, for each further search


class Steps(Protocol):
    """The steps that combinations stand for."""

    def same_as(self, one: Combination) -> Combination | None:
        """An earlier combination with the very same step. Raises ``PlanError`` for one that the model refuses."""

    def leaves_nothing(self, one: Combination) -> bool:
        """Whether its plan leaves nothing else open. Raises ``PlanError``."""

    def priced(self, one: Combination, like: Plan | None) -> PricedPlan:
        """Its price with another plan's layouts, or with its own plan's. Raises ``PlanError``."""

    def floor_s(self, one: Combination, priced: PricedPlan) -> float:
        """What it takes at least, whatever the layouts; it has been priced so."""

    def search(self, one: Combination, clock: Clock, tell: Callable[[Progress], None] | None) -> SearchResult:
        """Searches its best plan. Raises ``PlanError``."""


class Choosing:
    """A search over combinations."""

    def __init__(
        self,
        every: Sequence[Combination],
        steps: Steps,
        *,
        limit_bytes: int | None,
        clock: Clock,
        on_progress: Callable[[Progress], None] | None = None,
    ) -> None:
        self.every, self._steps, self._limit_bytes = every, steps, limit_bytes
        self._clock, self._on_progress = clock, on_progress
        self._promise = Promise(every)
        self._tried: list[Plan | None] = []  # the layouts that others were priced with
        self._longest_s = 0.0  # that pricing took

    @property
    def best(self) -> Combination | None:
        """The best combination with a plan."""
        return next(iter(self.ranked), None)

    @property
    def ranked(self) -> list[Combination]:
        """Those with plans, the best first."""
        found = [one for one in self.every if one.priced is not None]
        return sorted(found, key=lambda one: (one.step_time_s, one.index))

    @property
    def best_s(self) -> float:
        """The best step time that is known."""
        return min((one.step_time_s for one in self.every), default=math.inf)

    @property
    def bound_s(self) -> float:
        """What no plan takes less than, whatever the combination."""
        return min((one.bound_s for one in self.every), default=math.inf)

    def run(self) -> None:
        """Chooses."""
        first, took_s = self._first(), 0.0
        if first is None:
            return
        if self._is_whole(first):
            self.price(None, self._clock)
        else:
            self._search(first, self._clock.part(FIRST) if len(self.every) > 1 else self._clock)
            took_s = self._clock.elapsed_s
        while not self._clock.over and (best := self.best or self._first()) is not None:
            late = self._clock.left_s < max(took_s / 2, self._longest_s)
            if best.priced is not None:
                self.price(best.priced.plan, self._clock if late else self._clock.part(PRICING))
            left = [one for one in self.every if self._may_win(one)]
            if late or not left or self._clock.over:
                return
            self._search(self._most_promising(left), self._clock.part(NEXT) if len(left) > 1 else self._clock)

    def price(self, like: Plan | None, clock: Clock) -> None:
        """Prices the combinations that may win with a plan's layouts, or as their own plans have it.

        Where the time is over and none has a plan, one more is priced.
        """
        said = replace(like, settings={}, result=None) if like is not None else None
        if said not in self._tried:
            self._tried.append(said)
        number = self._tried.index(said)
        while True:
            late = clock.over or clock.left_s < self._longest_s
            left = [one for one in self.every if self._is_open(one) and number not in one.likes]
            if not left or (late and (self.ranked or clock.stopped)):
                return
            begin_s = clock.elapsed_s
            one = self._promise.next(left)
            one.likes.add(number)
            self._price(one, like)
            self._longest_s = max(self._longest_s, clock.elapsed_s - begin_s)
            if late:
                return

    def _price(self, one: Combination, like: Plan | None) -> None:
        if not self._is_accepted(one):
            return
        whole = self._is_whole(one)
        if one.is_out or not (whole or like):
            one.why = one.why or LATE
            return
        self._tell(f"pricing {one}")
        like = None if whole else like
        try:
            priced = self._steps.priced(one, like)
        except PlanError as error:
            if whole:
                one.refuse(error)
            elif one.priced is None:
                one.why = f"not priced: {message_of(error)}"
            return
        excess = self._excess(priced)
        one.floor_s = max(one.floor_s, self._steps.floor_s(one, priced))
        one.bound_s = max(one.bound_s, one.floor_s)
        if excess <= 0:
            one.take(priced)
            one.bound_s = priced.step_time_s if whole else one.bound_s
            self._doubt()
        elif whole:
            one.too_large = True
            one.refuse(f"takes {binary(excess)} more than the limit")
        elif one.priced is None:
            one.why = f"priced with another's layouts, it takes {binary(excess)} more than the limit"

    def _search(self, one: Combination, clock: Clock) -> None:
        if not self._is_accepted(one):
            return
        try:
            found = self._steps.search(one, clock, self._told(one))
        except PlanError as error:
            one.refuse(error)
            return
        one.found, one.why = found, ""
        if found.plan is not None and found.estimate is not None and found.status != "infeasible":
            one.take(PricedPlan(plan=found.plan, estimate=found.estimate))
        one.bound_s = max(one.bound_s, found.bound_s or 0.0)
        self._doubt()
        if found.status == "infeasible" and one.priced is None:
            one.refuse("no plan fits, which is proven")
        elif found.status == "infeasible":
            one.bound_s = one.floor_s  # another's layouts fit: what the search leaves out matters on this step

    def _doubt(self) -> None:
        """Takes the bounds of searches back where a plan is below one: what they leave out matters on these steps."""
        if any(one.step_time_s < one.bound_s * (1 - CLOSE) for one in self.every):
            for one in self.every:
                if one.priced is not None and one.floor_s == 0.0:
                    one.floor_s = self._steps.floor_s(one, one.priced)
                one.bound_s = one.bound_s if one.is_out else one.floor_s

    def _is_accepted(self, one: Combination) -> bool:
        """Whether the model takes these settings, and it is not a step that another combination stands for."""
        if one.seen:
            return not one.is_out
        self._tell(f"reading {one}")
        try:
            same = self._steps.same_as(one)
        except PlanError as error:
            one.refuse(error)
            return False
        one.seen = True
        if same is not None:
            one.refuse(f"the same step as {same}")
        return same is None

    def _is_whole(self, one: Combination) -> bool:
        """Whether its plan, which the model accepts, leaves nothing else open; one whose plan is wrong is refused."""
        try:
            return not one.is_out and self._steps.leaves_nothing(one)
        except PlanError as error:
            one.refuse(error)
            return False

    def _first(self) -> Combination | None:
        """The first combination that the model accepts and that has not been searched."""
        for one in self.every:
            if self._clock.over and any(other.seen for other in self.every):
                return None
            if one.found is None and not (one.is_out or one.others) and self._is_accepted(one):
                return one
        return None

    def _may_win(self, one: Combination) -> bool:
        return one.found is None and self._is_open(one)

    def _is_open(self, one: Combination) -> bool:
        return not (one.is_out or one.others) and one.bound_s < self.best_s * (1 - CLOSE)

    def _most_promising(self, left: Sequence[Combination]) -> Combination:
        priced = [one for one in left if one.priced is not None]
        return min(priced, key=lambda one: one.step_time_s) if priced else self._promise.next(left)

    def _excess(self, priced: PricedPlan) -> int:
        return priced.peak_bytes - self._limit_bytes if self._limit_bytes is not None else 0

    def _told(self, one: Combination) -> Callable[[Progress], None] | None:
        """What the search of one combination tells, told as part of the whole."""
        if self._on_progress is None:
            return None
        return lambda state: self._tell(f"{state.doing} ({one})" if state.doing else "", state)

    def _tell(self, doing: str, inner: Progress | None = None) -> None:
        if self._on_progress is not None:
            self._on_progress(self.state(doing, self._clock, inner))

    def state(self, doing: str, clock: Clock, inner: Progress | None = None) -> Progress:
        """How the search goes on; ``inner`` is the state of the search of one combination."""
        return Progress(
            doing=doing,
            tried=sum(1 for one in self.every if not (one.others or self._may_win(one))),
            total=len(self.every),
            best_s=min(self.best_s, inner.best_s if inner else math.inf),
            bound_s=min(self.bound_s, self.best_s),
            elapsed_s=clock.elapsed_s,
            left_s=clock.left_s,
        )
