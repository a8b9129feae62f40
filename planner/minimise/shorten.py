"""Finds few of a step's values to annotate such that propagation lays out the rest at the promised price."""

from __future__ import annotations

from collections.abc import Sequence

from .groups import Group
from .prices import Priced, Prices


def shortened(prices: Prices, groups: Sequence[Group]) -> Priced:
    """The best plan seen, with as few groups annotated as the trials allow.

    Halving: the shortest beginning of ``groups`` that is good ends with a group that is needed; with that one kept,
    the search goes on for those before it. Where a trial turns out better than all before, it is what is shortened.
    """
    everything = prices.of(_paths(groups))
    bare = prices.of(())
    if prices.good(bare) or not groups:
        return _chosen(prices, bare)
    pool, kept = list(groups), list[Group]()
    current = everything if prices.good(everything) else bare
    while not prices.spent:
        if prices.best is not None and not prices.good(current):
            current, kept = prices.best, []
            pool = [group for group in groups if set(group.paths) <= current.values]
        without = prices.of(_paths(kept))
        if prices.good(without) or not pool:
            current = without if prices.good(without) else current
            break
        length, found = _shortest_beginning(prices, kept, pool, current)
        if not prices.good(found):
            continue
        current = found
        kept = [pool[length - 1], *kept]
        pool = pool[: length - 1]
    return _chosen(prices, current)


def _shortest_beginning(prices: Prices, kept: list[Group], pool: list[Group], whole: Priced) -> tuple[int, Priced]:
    """How many of the first groups in ``pool`` are good with those kept, and the plan; ``whole`` is that of all."""
    low, high, found = 0, len(pool), whole
    step = 1
    while low + 1 < high and not prices.spent:
        middle = step if step < high and step > low else (low + high) // 2
        trial = prices.of(_paths([*pool[:middle], *kept]))
        if not prices.good(found):
            break
        if prices.good(trial):
            high, found, step = middle, trial, len(pool)
        else:
            low, step = middle, step * 2
    return high, found


def _chosen(prices: Prices, current: Priced) -> Priced:
    """``current`` if it is good, else the best plan seen."""
    return current if prices.good(current) or prices.best is None else prices.best


def _paths(groups: Sequence[Group]) -> set[str]:
    return {path for group in groups for path in group.paths}
