"""The table of what is best at run time: for each value of what changes, the settings that may change with it.

Every entry is priced with the one plan's layouts, so that nothing moves where the settings change (Tutel, section 3.2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...dsl.errors import PlanError
from ...dsl.plan import AtRunTime, Plan
from .choosing import Steps
from .combination import Combination, Promise
from .progress import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """The entries, the combinations that they were chosen from, and how many of these were looked at."""

    entries: tuple[AtRunTime, ...]
    every: tuple[Combination, ...]

    @property
    def looked_at(self) -> int:
        """How many were priced, or refused."""
        return sum(one.seen for one in self.every)


def table_of(
    plan: Plan,
    by: str,
    every: Sequence[Combination],
    steps: Steps,
    *,
    limit_bytes: int | None,
    clock: Clock,
    tell: Callable[[str], None],
) -> Table:
    """For each value of ``by`` the best of ``every`` combination, all with the layouts of ``plan``.

    As many are priced as the time allows, the plan's own settings for each value first.
    """
    promise, left, longest_s = Promise(every), list(every), 0.0
    as_it_is = [one for one in every if all(plan.settings.get(n) == v for n, v in one.settings.items() if n != by)]
    while left and not clock.over and clock.left_s >= longest_s:
        begin_s = clock.elapsed_s
        one = as_it_is.pop(0) if as_it_is else promise.next(left)
        left.remove(one)
        tell(f"pricing {one}")
        _price(one, plan, steps, limit_bytes)
        longest_s = max(longest_s, clock.elapsed_s - begin_s)
    return Table(entries=tuple(_entries(plan, by, every)), every=tuple(every))


def _price(one: Combination, plan: Plan, steps: Steps, limit_bytes: int | None) -> None:
    try:
        same = steps.same_as(one)
        one.seen = True
        priced = same.priced if same is not None else steps.priced(one, plan)
    except PlanError as error:
        one.refuse(error)
        return
    if priced is None or (limit_bytes is not None and priced.peak_bytes > limit_bytes):
        one.refuse("takes more than the limit")
        return
    one.take(priced)


def _entries(plan: Plan, by: str, every: Sequence[Combination]) -> Iterator[AtRunTime]:
    best: dict[Any, Combination] = {}
    for one in every:
        amount = one.settings[by]
        if one.priced is not None and (amount not in best or one.step_time_s < best[amount].step_time_s):
            best[amount] = one
    for amount, one in sorted(best.items()):
        yield _entry(plan, {by: amount}, one)


def _entry(plan: Plan, when: Mapping[str, Any], one: Combination) -> AtRunTime:
    priced = one.priced
    if priced is None:
        raise ValueError("a combination without a price is in no table")
    kept = {rule.pattern for rule in priced.plan.rules}
    return AtRunTime(
        when=when,
        settings={name: value for name, value in one.settings.items() if name not in when},
        step_time_s=priced.step_time_s,
        peak_bytes=priced.peak_bytes,
        without=tuple(rule.pattern for rule in plan.rules if rule.pattern not in kept),
    )
