"""Finds few of a step's values to annotate such that propagation lays out the rest at the promised price.

Causes: the places that take longer than in the exact plan are looked at with what propagation makes of a draft, which
is known far sooner than its price. The first value of the program that lies wrongly before such a place is annotated,
and so on until all lie as they are to; then the price says what is still lost. And the lines that were not needed after
all are dropped again: those without which propagation comes to the same, then those that make no difference in price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..estimate.figures import Estimate
from .bundles import Bundles
from .flow import Spot
from .groups import Group
from .guide import Cause, Guide, blame, seconds
from .looks import FEWEST_LOOKS, Looks, groups_of, paths_of
from .prices import Priced, Prices

MOST_ROUNDS = 16
PRECISE = 5  # rounds with one cause each; two at once where these were not enough
FEW_LINES = 15
"""Of a plan of a step that takes long to price: one with no more is short enough."""

READABLE = 40
"""Of a plan of any other step, less than which nothing else is tried."""

MOST_LINES = 12
"""For computed values: a plan with no more is preferred to a shorter one that takes longer."""

BLAME = 4e-4  # of a step: what a place has to take longer for to be looked at
MENDED = 5  # causes tried one by one to come nearer to what was promised, beside all other trials
BEGUN = 0.02  # of a step: where its heavy places lie right but for as much, its plan is priced
HASTY_LOOKS = 3  # of these at least, for a plan that is only some way right and can be read
GROWING = 0.6  # of the trials, before all that decides is said at once
PATIENCE = 2  # rounds without a better plan, where each takes long
ASTRAY = 3  # such rounds elsewhere, none better than the one before, before what they annotated is given up
SELDOM = 12
"""Where no more plans may be priced, the first is one that propagation alone tells most of."""

IN_A_ROW = 6
"""So often causes are looked for before the next price, which takes as long as three looks: what else lies wrongly
before the same places once the first are annotated.
"""

PARTS = 2, 4  # of causes that are tried without, those that matter least first: the larger part of a few may matter
AT_ONCE = 2, 6  # causes annotated before propagation is asked again: where it is asked often, and seldom


def shortened(prices: Prices, groups: Sequence[Group], guide: Guide, dropping: int) -> Priced:
    """The best plan seen, with as few lines as the trials allow, ``dropping`` of them without what may be needless."""
    shortener = _Shortener(prices, guide, dropping)
    seldom = bool(groups) and (shortener.is_large or prices.trials <= SELDOM)
    begun = shortener.begun(_legal(prices, list(groups))) if seldom else []
    current = prices.of(paths_of(begun))
    if current.estimate is None:
        begun, current = [], prices.of(())
    everything = _legal(prices, list(groups))

    def lines_of(found: Priced) -> int:
        return len(prices.writer.plan_of(found.values).rules)

    if not everything.values or (prices.good(current) and not begun):
        return _best(prices, current)
    wanted = prices.best
    trials = prices.trials
    short = shortener.run(current, begun)
    if not shortener.is_large and (short is None or lines_of(short) > READABLE):
        prices.trials = trials
        said = Bundles(prices, guide, shortener.looks).run(everything)
        if said is not None and (short is None or prices.worth(said, short, lines_of(short) - lines_of(said))):
            return said
    if short is None:
        return _best(prices, _halved(prices, everything))
    if wanted is None or prices.spent or shortener.is_large or prices.within(short, wanted):
        return short
    prices.best = wanted
    other = _best(prices, _halved(prices, everything))
    return other if len(prices.writer.lines_of(other.values)) <= MOST_LINES else short


def _best(prices: Prices, found: Priced) -> Priced:
    """``found`` if it is good, else the best plan seen."""
    return found if prices.good(found) or prices.best is None else prices.best


def _legal(prices: Prices, groups: list[Group]) -> Priced:
    """Everything annotated that may be: where all together is no legal plan, halves that are."""
    whole = prices.of({path for group in groups for path in group.paths})
    if whole.estimate is not None or len(groups) < 2 or prices.spent:
        return whole if whole.estimate is not None else prices.of(())
    half = len(groups) // 2
    kept = _legal(prices, groups[:half]).values | _legal(prices, groups[half:]).values
    return prices.of(kept)


class _Shortener:
    """Adds causes, then drops what is not needed. A step that ``is_large`` takes long to price."""

    def __init__(self, prices: Prices, guide: Guide, dropping: int):
        self.prices, self.guide, self.dropping = prices, guide, dropping
        self.looks = Looks(prices, guide)
        self.is_large = self.looks.left < 2 * FEWEST_LOOKS
        self.at_once = AT_ONCE[self.is_large]
        self.in_a_row = 1 if self.is_large else IN_A_ROW
        self.blamed: dict[Spot, float] = {}
        self.given_up: list[Cause] = []
        self._known: dict[frozenset[str], frozenset[str]] = {}
        self._asks_exactly = True

    def begun(self, everything: Priced) -> list[Cause]:
        """First causes of what takes long with everything annotated, as far as propagation alone tells them."""
        kept: list[Cause] = []
        took = seconds(everything.estimate) if everything.estimate is not None else {}
        for number in range(self.looks.left):
            found = self._first(took, kept) if number < HASTY_LOOKS or not self.prices.spent else []
            if sum(cause.seconds for cause in found) <= BEGUN * sum(took.values()):
                break
            kept += found
        return kept

    def run(self, current: Priced, kept: list[Cause]) -> Priced | None:
        """The best short plan, where one is about as good as the best plan seen; ``current`` annotates ``kept``."""
        short, rounds_since = (current, kept), 0
        most = self.prices.trials if self.is_large else self.prices.count + int(self.prices.trials * GROWING)
        for number in range(MOST_ROUNDS):
            self.at_once += number == PRECISE
            best = self.prices.best
            if self.prices.close(current) or self.prices.spent or self.prices.count >= most or best is None:
                break
            if best.estimate is None or current.estimate is None:
                break
            lost = blame(current.estimate, best.estimate, BLAME)
            self.blamed |= lost
            found = self._several(lost, kept, best.estimate)
            if not found:
                break
            kept = [*kept, *found]
            before, current = current, self.prices.of(paths_of(kept))
            is_worse = not self.is_large and short[0].rank < current.rank
            if is_worse or self.prices.worth(short[0], current, len(kept) - len(short[1])):
                falls = not self.is_large and current.rank < before.rank
                rounds_since = 0 if falls else rounds_since + 1
            else:
                short, rounds_since = (current, kept), 0
            if self.is_large and (rounds_since >= PATIENCE or self.prices.near(short[0])):
                break
            if not self.is_large and rounds_since >= ASTRAY:
                self.given_up += [cause for cause in kept if cause not in short[1]]
                (current, kept), rounds_since = short, 0
        if not self.is_large and not self.prices.near(short[0]) and self.prices.within_reach(short[0]):
            short = self._mended(*short)
        if not self.prices.settles(short[0]):
            return short[0] if self.is_large and self.prices.will_do(short[0]) else None
        if not self.is_large:
            short = self._mended(*short)
            self.prices.allow(self.dropping)
        return self._dropped(*short)

    def _mended(self, current: Priced, kept: list[Cause]) -> tuple[Priced, list[Cause]]:
        """A plan that takes longer than was promised, with what makes it better of the values that still lie wrongly.

        They are annotated one at a time, for where it takes longer than with all annotated, which may take as long.
        """
        tried: list[Cause] = []
        everything = self.prices.of(self.prices.everything).estimate
        for _ in range(MENDED):
            if current.estimate is None or everything is None or self.prices.keeps_promise(current) or self.prices.late:
                break
            wrong, settled = self.looks.wrong(kept), groups_of([*kept, *tried])
            first = self.guide.causes(wrong, blame(current.estimate, everything, BLAME), settled)[:1]
            if not first:
                break
            found = [*first, *self.guide.heirs(first[0], wrong, settled)]
            tried += found
            trial = self.prices.of(paths_of([*kept, *found]))
            if trial.rank < current.rank and not self.prices.worth(current, trial, 1):
                current, kept = trial, [*kept, *found]
        return current, kept

    def _several(self, lost: Mapping[Spot, float], kept: Sequence[Cause], best: Estimate) -> list[Cause]:
        """Causes, those that are left once the first are annotated too."""
        found: list[Cause] = []
        self._asks_exactly = not (self.prices.best and self.prices.best.is_sketched)  # which has it as looks have
        for _ in range(self.in_a_row):
            known = groups_of(found)
            more = [cause for cause in self._causes(lost, [*kept, *found], best) if cause.group not in known]
            if not more:
                break
            found += more
        return found

    def _causes(self, lost: Mapping[Spot, float], kept: Sequence[Cause], best: Estimate) -> list[Cause]:
        """What, annotated besides ``kept``, makes what is blamed for lost time lie as it is to.

        Where it does already, what is said of operands there, and of the values that this makes lie wrongly.
        """
        right = self.guide.unexplained(self.looks.wrong(kept), lost, self._settled(kept))
        found = self._first(lost, kept)
        is_hopeless = sum(right.values()) > best.step_time_s
        if found and self.is_large and not is_hopeless:
            return found  # what is still lost then tells which products matter
        if right and self._asks_exactly and not self.is_large and max(right.values()) >= max(lost.values()):
            found += self._exactly(right, [*kept, *found])
        beside = self.guide.beside(right, self._settled([*kept, *found]), at_once=self.is_large)
        if beside:
            wrong = self.looks.wrong([*kept, *found])
            found += beside
            heavy = {spot: took_s for spot, took_s in seconds(best).items() if took_s > BLAME * best.step_time_s}
            found += self._first(heavy, [*kept, *found], known=wrong)
        return found

    def _first(
        self, lost: Mapping[Spot, float], kept: Sequence[Cause], known: frozenset[str] = frozenset()
    ) -> list[Cause]:
        """First causes of what is blamed. That ``known`` values lie wrongly is not new."""
        if self.looks.left <= 0:
            return []
        return self.guide.causes(self.looks.wrong(kept) - known, lost, self._settled(kept))[: self.at_once]

    def _settled(self, kept: Sequence[Cause]) -> list[Group]:
        """What is annotated, and what is not to be."""
        return groups_of([*kept, *self.given_up])

    def _exactly(self, right: Mapping[Spot, float], kept: Sequence[Cause]) -> list[Cause]:
        """Causes of what is blamed, as a price has them: what propagation alone tells explains nothing of it.

        Where that explains nothing either, it is not asked again before the next price.
        """
        paths = frozenset(paths_of(kept))
        if paths not in self._known:
            self._known[paths] = self.guide.exactly_wrong(self.prices.writer.draft_of(paths))
        found = self.guide.causes(self._known[paths], right, self._settled(kept))[: self.at_once]
        self._asks_exactly = bool(found)
        return found

    def _dropped(self, current: Priced, kept: Sequence[Cause]) -> Priced:
        """A good plan without what changes nothing of how values lie, and without what costs little."""
        if current.estimate is None or not kept or self.prices.late:
            return current
        self.prices.whole_s = current.rank[1]
        watched = self.guide.heavy(current.estimate, self.blamed)
        busy = list(kept) if self.is_large else self._without_idle(kept, watched)
        left = list(kept)
        for fewer in ([cause for cause in busy if not cause.is_right or cause.group.is_operand], busy):
            trial = self.prices.of(paths_of(fewer))
            if self.prices.close(trial) or trial.rank <= current.rank:
                current, left = trial, fewer
                break
        left.sort(key=lambda cause: cause.seconds)
        size = max(-(-len(left) // PARTS[self.is_large]), 1)
        for block in [left[i : i + size] for i in range(0, len(left), size)]:
            current, left = self._without(current, left, block)
        return current

    def _without_idle(self, kept: Sequence[Cause], watched: frozenset[str]) -> list[Cause]:
        """Those without which some watched value lies wrongly that lies as it is to with all."""
        left = list(kept)
        wrong = self.looks.wrong(left) & watched
        for cause in kept:
            fewer = [each for each in left if each is not cause]
            if not cause.is_right and self.looks.left > 0 and self.looks.wrong(fewer) & watched <= wrong:
                left = fewer
        return left

    def _without(self, current: Priced, left: list[Cause], block: Sequence[Cause]) -> tuple[Priced, list[Cause]]:
        """The plan of ``left`` without those of a block that it does not need: all, or some of either half."""
        if not block or self.prices.spent or self._is_short(left):
            return current, left
        fewer = [each for each in left if each not in block]
        trial = self.prices.of(paths_of(fewer))
        if self.prices.worth(trial, current, len(block)) or (self._is_short(fewer) and self.prices.will_pass(trial)):
            return trial, fewer
        if len(block) > 1:
            half = len(block) // 2
            current, left = self._without(current, left, block[:half])
            current, left = self._without(current, left, block[half:])
        return current, left

    def _is_short(self, left: Sequence[Cause]) -> bool:
        """Whether a plan that takes long to price is short enough."""
        return self.is_large and len(self.prices.writer.plan_of(paths_of(left)).rules) <= FEW_LINES


def _halved(prices: Prices, current: Priced) -> Priced:
    """A good plan without the lines that it does not need: blocks of lines are left out, then halves of them."""
    if prices.spent:
        return current
    return _without_lines(prices, current, [frozenset(line) for line in prices.writer.lines_of(current.values)])


def _without_lines(prices: Prices, current: Priced, block: Sequence[frozenset[str]]) -> Priced:
    if not block or prices.spent or not prices.good(current):
        return current
    trial = prices.of(current.values.difference(*block))
    if prices.close(trial):
        return trial
    if len(block) > 1:
        half = len(block) // 2
        current = _without_lines(prices, current, block[:half])
        current = _without_lines(prices, current, block[half:])
    return current
