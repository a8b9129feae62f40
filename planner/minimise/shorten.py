"""Finds few of a step's values to annotate such that propagation lays out the rest at the promised price.

Three steps. First causes: the first value of the program that propagation lays wrongly is annotated, as long as that
helps much; one such value of a block often sets all others right. Suspects: the operations that take longer than in the
exact plan, until the price is right. And the lines that were not needed after all are dropped again, many at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

from .groups import Group
from .guide import Guide
from .prices import Priced, Prices

MOST_CAUSES, MOST_FAILURES, MOST_ROUNDS = 6, 2, 4
HELPS = 0.1  # of the time that is lost: what a first cause has to win back


def shortened(prices: Prices, groups: Sequence[Group], guide: Guide) -> Priced:
    """The best plan seen, with as few lines as the trials allow."""
    everything = _legal(prices, list(groups))
    bare = prices.of(())
    if prices.good(bare) or not everything.values:
        return _best(prices, bare)
    causes = _first_causes(prices, guide, bare)
    known, current = _convicted(prices, guide, causes)
    known += [group for group in groups if group not in known]
    return _best(prices, _dropped(prices, current if prices.good(current) else everything, known))


def _best(prices: Prices, found: Priced) -> Priced:
    """``found`` if it is good, else the best plan seen."""
    return found if prices.good(found) or prices.best is None else prices.best


def _legal(prices: Prices, groups: list[Group]) -> Priced:
    """Everything annotated that may be: where all together is no legal plan, halves that are."""
    whole = prices.of(_paths(groups))
    if whole.estimate is not None or len(groups) < 2 or prices.spent:
        return whole if whole.estimate is not None else prices.of(())
    half = len(groups) // 2
    kept = _legal(prices, groups[:half]).values | _legal(prices, groups[half:]).values
    return prices.of(kept)


def _first_causes(prices: Prices, guide: Guide, bare: Priced) -> list[Group]:
    """Groups each of which, annotated after those before, wins back much of the time that is lost."""
    kept: list[Group] = []
    tried: set[Group] = set()
    current, failures = bare, 0
    while len(kept) < MOST_CAUSES and failures < MOST_FAILURES and not (prices.good(current) or prices.spent):
        group = guide.first_cause(current.plan, tried)
        if group is None:
            break
        tried.add(group)
        trial = prices.of(_paths([*kept, group]))
        if _helps(prices, trial, current):
            kept, current, failures = [*kept, group], trial, 0
        else:
            failures += 1
    return kept


def _helps(prices: Prices, trial: Priced, current: Priced) -> bool:
    """Whether a trial is much nearer to the best plan than ``current``."""
    if trial.estimate is None or prices.best is None or trial.rank[0] > current.rank[0]:
        return False
    lost = current.rank[1] - prices.best.rank[1]
    return trial.rank[0] < current.rank[0] or current.rank[1] - trial.rank[1] > HELPS * max(lost, 0.0)


def _convicted(prices: Prices, guide: Guide, causes: Sequence[Group]) -> tuple[list[Group], Priced]:
    """First causes, then all that is suspected of the time that is still lost, round after round; and their plan."""
    known = list(causes)
    current = prices.of(_paths(known))
    for _ in range(MOST_ROUNDS):
        best = prices.best
        if prices.good(current) or prices.spent or current.estimate is None or best is None or best.estimate is None:
            break
        found = guide.suspects(current.estimate, best.estimate, known)
        if not found:
            break
        known += found
        current = prices.of(_paths(known))
    return known, current


def _dropped(prices: Prices, current: Priced, known: Sequence[Group]) -> Priced:
    """A good plan without the lines that it does not need: blocks of lines are left out, then halves of them.

    ``known`` has the groups of values in the order in which they are likely to be needed.
    """
    number = {path: i for i, group in enumerate(known) for path in group.paths}
    while True:
        lines = [frozenset(line) for line in prices.writer.lines_of(current.values)]
        lines.sort(key=lambda line: -min(number[path] for path in line))
        current = _without(prices, current, lines)
        best = prices.best
        if prices.spent or best is None or prices.good(current):
            return current
        current = best


def _without(prices: Prices, current: Priced, block: Sequence[frozenset[str]]) -> Priced:
    if not block or prices.spent or not prices.good(current):
        return current
    trial = prices.of(current.values.difference(*block))
    if prices.good(trial):
        return trial
    if len(block) > 1:
        half = len(block) // 2
        current = _without(prices, current, block[:half])
        current = _without(prices, current, block[half:])
    return current


def _paths(groups: Sequence[Group]) -> set[str]:
    return {path for group in groups for path in group.paths}
