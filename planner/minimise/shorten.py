"""Finds few of a step's values to annotate such that propagation lays out the rest at the promised price.

Causes: the places that take longer than in the exact plan are looked at with what propagation makes of a draft, which
is known far sooner than its price. The first value of the program that lies wrongly before such a place is annotated,
and so on until all lie as they are to; then the price says what is still lost. And the lines that were not needed after
all are dropped again: those without which propagation comes to the same, then those that make no difference in price.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .flow import Spot
from .groups import Group
from .guide import Cause, Guide, blame
from .prices import Priced, Prices

MOST_ROUNDS, MOST_ADDED = 8, 16
BLAME = 4e-4  # of a step: what a place has to take longer for to be looked at


def shortened(prices: Prices, groups: Sequence[Group], guide: Guide) -> Priced:
    """The best plan seen, with as few lines as the trials allow."""
    current = prices.of(())
    everything = _legal(prices, list(groups))
    if prices.good(current) or not everything.values:
        return _best(prices, current)
    kept: list[Cause] = []
    blamed: dict[Spot, float] = {}
    short = current, kept
    for _ in range(MOST_ROUNDS):
        best = prices.best
        if prices.close(current) or prices.spent or best is None or best.estimate is None or current.estimate is None:
            break
        lost = blame(current.estimate, best.estimate, BLAME)
        blamed |= lost
        found = _causes(prices, guide, lost, kept)
        if not found:
            break
        kept = [*kept, *found]
        current = prices.of(_paths(kept))
        if current.rank < short[0].rank:
            short = current, kept
    if not prices.settles(short[0]):
        return _best(prices, _halved(prices, everything))
    return _dropped(prices, guide, short[1], blamed)


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


def _causes(prices: Prices, guide: Guide, lost: Mapping[Spot, float], kept: Sequence[Cause]) -> list[Cause]:
    """What, annotated besides ``kept``, makes what is blamed for lost time lie as it is to.

    Where it does already, what is said of operands there, and of the values that this makes lie wrongly.
    """
    right = guide.unexplained(_wrong(prices, guide, kept), lost, _groups(kept))
    found = _righted(prices, guide, lost, kept)
    beside = guide.beside(right, _groups([*kept, *found]))
    if beside:
        wrong = _wrong(prices, guide, [*kept, *found])
        found += beside
        found += _righted(prices, guide, guide.everywhere, [*kept, *found], known=wrong)
    return found


def _righted(
    prices: Prices, guide: Guide, lost: Mapping[Spot, float], kept: Sequence[Cause], known: frozenset[str] = frozenset()
) -> list[Cause]:
    """First causes of what is blamed, until all of it is right. That the values ``known`` lie wrongly is not new."""
    found: list[Cause] = []
    while len(found) < MOST_ADDED:
        wrong = _wrong(prices, guide, [*kept, *found]) - known
        cause = guide.cause(wrong, lost, _groups([*kept, *found]))
        if cause is None:
            break
        found.append(cause)
    return found


def _wrong(prices: Prices, guide: Guide, kept: Sequence[Cause]) -> frozenset[str]:
    """The values that lie wrongly where these are annotated."""
    return guide.wrong(prices.writer.draft_of(_paths(kept)))


def _dropped(prices: Prices, guide: Guide, kept: Sequence[Cause], blamed: Mapping[Spot, float]) -> Priced:
    """A good plan without what changes nothing of how values lie, and without what costs little."""
    current = prices.of(_paths(kept))
    if current.estimate is None:
        return current
    watched = guide.heavy(current.estimate, blamed)
    left = list(kept)
    wrong = _wrong(prices, guide, left) & watched
    for cause in kept:
        fewer = [each for each in left if each is not cause]
        if not cause.is_right and _wrong(prices, guide, fewer) & watched <= wrong:
            left = fewer
    trial = prices.of(_paths(left))
    if prices.close(trial):
        current = trial
    else:
        left = list(kept)
    left.sort(key=lambda cause: (not cause.is_right, cause.seconds))
    return _without(prices, current, left, left)[0]


def _without(prices: Prices, current: Priced, left: list[Cause], block: Sequence[Cause]) -> tuple[Priced, list[Cause]]:
    """The plan of ``left`` without those of a block that it does not need: all, or some of either half."""
    if not block or prices.spent:
        return current, left
    fewer = [each for each in left if each not in block]
    trial = prices.of(_paths(fewer))
    if prices.close(trial):
        return trial, fewer
    if len(block) > 1:
        half = len(block) // 2
        current, left = _without(prices, current, left, block[:half])
        current, left = _without(prices, current, left, block[half:])
    return current, left


def _groups(kept: Sequence[Cause]) -> list[Group]:
    return [cause.group for cause in kept]


def _halved(prices: Prices, current: Priced) -> Priced:
    """A good plan without the lines that it does not need: blocks of lines are left out, then halves of them."""
    lines = [frozenset(line) for line in prices.writer.lines_of(current.values)]
    return _without_lines(prices, current, lines)


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


def _paths(kept: Sequence[Cause]) -> set[str]:
    return {path for cause in kept for path in cause.group.paths}
