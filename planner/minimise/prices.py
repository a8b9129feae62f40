"""Prices of plans while one is shortened: each asked for once, counted, compared."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass

from ...dsl.errors import PlanError
from ...dsl.plan import Plan
from ..estimate.figures import Estimate
from ..search.workload import SKETCHED, Workload
from .rules import Writer

TOLERANCE = 2e-3  # prices that differ by less are the same
CLOSE = 5e-3  # what fewer lines are worth
A_LINE = 1e-3  # what one less is worth
SAME = 2e-4  # what one less may cost where more than lines are worth is lost already
FAR = 2e-2
LATE = 5e-2  # what a plan may take more that can be read, where the time is over
ALIKE = 1e-2  # of the promised price: what like layouts of like tensors may take more
KEPT = 8e-3  # of the promised price: what a plan may take more for fewer lines, where that is in reach
PROVEN = 9e-3  # of what is proven: the same, where the promised price is nearer to that


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A plan and what it takes; ``estimate`` is None where ``error`` says why it cannot be priced."""

    values: frozenset[str]
    plan: Plan
    estimate: Estimate | None
    error: PlanError | None = None

    @property
    def is_sketched(self) -> bool:
        """Whether it is known nearly, of how values lie as ``Workload.lies`` has it."""
        return self.estimate is not None and SKETCHED in self.estimate.notes

    @property
    def rank(self) -> tuple[float, float]:
        """Bytes above the limit, then seconds: the lower the better."""
        if self.estimate is None:
            return math.inf, math.inf
        over = self.estimate.peak_bytes - self.estimate.limit_bytes if self.estimate.limit_bytes else 0
        return max(over, 0), self.estimate.step_time_s


class Prices:
    """Prices plans that annotate this or that of a step's values, up to a number of ``trials`` and a deadline; it is
    enough to know them ``nearly``.
    """

    def __init__(
        self,
        workload: Workload,
        writer: Writer,
        *,
        trials: int,
        deadline: float,
        promised_s: float = 0.0,
        proven_s: float = 0.0,
        nearly: bool = True,
    ):
        self.nearly = nearly
        self.promised_s, self.proven_s = promised_s, proven_s
        self.workload = workload
        self.writer = writer
        self.trials = trials
        self.deadline = deadline
        self.count = 0
        self.sketched = False  # some of them
        self.reserved = 0
        self.best: Priced | None = None
        self.least_s = math.inf
        self.whole_s = math.inf  # what the plan takes whose lines are dropped
        self.known: dict[frozenset[str], Priced] = {}

    @property
    def spent(self) -> bool:
        """Whether no trial is left but those ``reserved``."""
        return self.count >= self.trials - self.reserved or self.late

    @property
    def late(self) -> bool:
        """Whether the deadline is over, which is in ``time.monotonic``'s seconds."""
        return time.monotonic() > self.deadline

    def allow(self, trials: int) -> None:
        """Leaves no more trials than these, and those that are ``reserved``."""
        self.trials = min(self.trials, self.count + self.reserved + trials)

    @property
    def everything(self) -> frozenset[str]:
        """The values that a plan need not speak of, all of them."""
        return frozenset(tensor.path for tensor in self.writer.values)

    def prefers(self, writer: Writer) -> bool:
        """Takes another writer in the place of the one now, if all that it writes takes no longer.

        Of the two, the one not taken is forgotten: ``best`` is what the writer has written.
        """
        other, before = frozenset(tensor.path for tensor in writer.values), (self.best, self.least_s)
        found = self.of_plan(writer.draft_of(other), other)
        self.best, self.least_s = before
        if found.rank > (0, self.promised_s * (1 + ALIKE)):
            now = self.of(self.everything)
            if found.rank[0] > now.rank[0] or found.rank[1] > now.rank[1] * (1 + CLOSE):
                return False
        self.writer, self.known, self.best, self.least_s = writer, {other: found}, found, _seconds_of(found)
        return True

    def of(self, values: Collection[str]) -> Priced:
        """The price of a draft that annotates these values, beside arguments and results."""
        key = frozenset(values)
        if key not in self.known:
            self.known[key] = self.of_plan(self.writer.draft_of(key), key)
        return self.known[key]

    def of_plan(self, plan: Plan, values: frozenset[str]) -> Priced:
        """The price of a plan; ``values`` are those that it was made to annotate. One that is not legal counts not."""
        try:
            found = Priced(values=values, plan=plan, estimate=self.workload.estimate(plan, nearly=self.nearly))
            self.count += 1
            self.sketched |= found.is_sketched
        except PlanError as error:
            found = Priced(values=values, plan=plan, estimate=None, error=error)
        if self.best is None or found.rank < self.best.rank:
            self.best = found
        self.least_s = min(self.least_s, _seconds_of(found))
        return found

    def good(self, found: Priced) -> bool:
        """Whether nothing seen so far is better than ``found`` by more than the tolerance."""
        return self._within(found, TOLERANCE)

    def close(self, found: Priced) -> bool:
        """Whether nothing seen so far is much better, or it is what was promised: what is lost is worth fewer lines."""
        return self._within(found, CLOSE, self.promised_s) and found.rank[1] <= self._kept_s

    @property
    def _kept_s(self) -> float:
        """What a plan may take for fewer lines; infinite where what was promised is not in reach."""
        in_reach = self.least_s <= self.promised_s * (1 + ALIKE)
        return max(self.least_s, self._allowed_s) if in_reach else math.inf

    @property
    def _allowed_s(self) -> float:
        return allowed_s(self.promised_s, self.proven_s)

    def keeps_promise(self, found: Priced) -> bool:
        """Whether a plan takes about what the layouts were said to take, if that was said."""
        return not self.promised_s or found.rank <= (0, self.promised_s * (1 + TOLERANCE))

    def keeps(self, found: Priced) -> bool:
        """The same but for what fewer lines are worth."""
        return not self.promised_s or found.rank <= (0, self._allowed_s)

    def worth(self, found: Priced, current: Priced, fewer: int) -> bool:
        """Whether a plan is better than another one for so many fewer things that it says.

        All that fewer lines cost is held against what was promised, or the least seen where that is not in reach.
        Those that cost next to nothing are worth it anyway, all together no more than ``CLOSE`` of ``whole_s``.
        """
        next_to_nothing_s = min(current.rank[1] * (1 + SAME * fewer), self.whole_s * (1 + CLOSE))
        if current.rank[1] <= self._kept_s:
            next_to_nothing_s = min(next_to_nothing_s, self._kept_s)
        if found.estimate is not None and found.rank[0] <= current.rank[0] and found.rank[1] <= next_to_nothing_s:
            return True
        most_s = min(self.least_s * (1 + ALIKE), self._kept_s)
        least = self._within(found, ALIKE) and found.rank <= (current.rank[0], most_s)
        return least and found.rank[1] <= current.rank[1] * (1 + A_LINE * fewer)

    def will_pass(self, found: Priced) -> bool:
        """Whether a plan that can be read takes little more than the one whose lines are dropped."""
        over = self.best.rank[0] if self.best is not None else 0
        return found.rank <= (over, self.whole_s * (1 + CLOSE))

    def near(self, found: Priced) -> bool:
        """Whether nothing seen so far is so much better that lines do not count."""
        return self._within(found, FAR)

    def within(self, found: Priced, wanted: Priced) -> bool:
        """Whether ``found`` is as good as ``wanted`` but for what fewer lines are worth."""
        return found.rank[0] <= wanted.rank[0] and found.rank[1] <= wanted.rank[1] * (1 + CLOSE)

    def settles(self, found: Priced) -> bool:
        """Whether ``found`` will do where nothing more is known to say; if so what comes later is compared with it.

        Values annotated that lie as they would anyway can keep the compiler from joining operations.
        """
        if not self.near(found):
            return False
        if not self._within(found, CLOSE):
            self.best = found
        return True

    def will_do(self, found: Priced) -> bool:
        """Whether there is no time for a better plan than ``found``, and nothing seen is better by far."""
        return self.late and self.within_reach(found)

    def within_reach(self, found: Priced) -> bool:
        """Whether nothing seen so far is better by far."""
        return self._within(found, LATE)

    def _within(self, found: Priced, tolerance: float, enough_s: float = 0.0) -> bool:
        if found.estimate is None or self.best is None:
            return False
        over, seconds = self.best.rank
        most_s = max(seconds * (1 + tolerance), min(enough_s, seconds * (1 + ALIKE)))
        return found.rank[0] <= over and found.rank[1] <= most_s


def allowed_s(promised_s: float, proven_s: float) -> float:
    """What a plan may take for fewer lines that was promised to take ``promised_s``: so that it is within a hundredth
    of what is proven, where what was promised is.
    """
    most_s, near_s = promised_s * (1 + KEPT), proven_s * (1 + PROVEN)
    return min(most_s, near_s) if near_s >= promised_s * (1 + TOLERANCE) else most_s


def _seconds_of(found: Priced) -> float:
    """What a plan takes; infinite for one that does not fit."""
    return found.rank[1] if found.rank[0] == 0 else math.inf
