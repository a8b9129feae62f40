"""One value for each setting that a plan leaves open, what is known of it, and which is worth a look next."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...dsl.errors import PlanError
from ...dsl.plan import Plan
from .result import PricedPlan, SearchResult
from .settings_rows import SettingsRow, SettingsTried

LATE = "the time was over"


@dataclass(slots=True, kw_only=True)
class Combination:
    """Values of the open settings and what was learnt: ``plan`` has them filled in, and a mesh where ``on`` says which.

    ``bound_s`` is what no plan with these settings takes less than, ``floor_s`` a bound that takes less for granted,
    ``priced`` the best plan that is known, ``found`` the answer of a whole search. ``likes`` numbers the plans
    whose layouts it was priced with. ``why`` says why it has no plan, or is not looked at, and ``error`` is what the
    model says that refuses it; ``too_large`` that its plan, which leaves nothing open, does not fit.
    One that stands for so many ``others`` is never read: nothing is known of them.
    """

    index: int
    settings: Mapping[str, Any]
    plan: Plan = field(repr=False)
    on: str = ""
    bound_s: float = 0.0
    floor_s: float = 0.0
    priced: PricedPlan | None = None
    found: SearchResult | None = field(default=None, repr=False)
    likes: set[int] = field(default_factory=set, repr=False)
    seen: bool = False
    too_large: bool = False
    why: str = ""
    others: int = 0
    error: PlanError | None = field(default=None, repr=False)

    @property
    def step_time_s(self) -> float:
        """The price of its best plan, infinite without one."""
        return self.priced.step_time_s if self.priced else math.inf

    @property
    def is_out(self) -> bool:
        """Whether it has no plan, which is known."""
        return self.bound_s == math.inf

    @property
    def is_known(self) -> bool:
        """Whether more than its name is known: a price, the answer of a search, or that it has neither."""
        return self.is_out or self.priced is not None or self.found is not None or bool(self.likes)

    @property
    def values(self) -> dict[str, Any]:
        """What tells it from others: its settings, and its mesh where that is left open too."""
        return {**self.settings, **({"mesh": self.on} if self.on else {})}

    def refuse(self, why: str | PlanError) -> None:
        """Says that it has no plan."""
        if isinstance(why, PlanError):
            self.error, why = why, message_of(why)
        self.seen, self.why, self.bound_s = True, why, math.inf

    def take(self, plan: PricedPlan) -> None:
        """Keeps a plan that is better than what was known."""
        if plan.step_time_s < self.step_time_s:
            self.priced, self.why = plan, ""

    def __str__(self) -> str:
        return ", ".join(f"{name}: {written(value)}" for name, value in self.values.items())


def message_of(error: PlanError) -> str:
    """What an error says first."""
    return error.problems[0].message if error.problems else str(error)


def written(value: Any) -> str:
    """A setting's value as a plan has it, nearly."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class Promise:
    """Which combination is worth pricing next, from the prices of others.

    First every value once, each beside the best that is known, so that it is told what one value alone changes, another
    value of each setting before a third one of any; then those that should take least if the values' effects multiply.
    """

    def __init__(self, every: Sequence[Combination]) -> None:
        self._every = every

    def next(self, left: Sequence[Combination]) -> Combination:
        """The one of ``left`` to look at."""
        priced = [one for one in self._every if one.priced is not None]
        seen = {(name, repr(value)) for one in self._every if one.is_known for name, value in one.values.items()}
        count = Counter(name for name, _ in seen)
        best = min(priced, key=lambda one: one.step_time_s, default=self._every[0])
        effects = _effects(priced)

        def rank(one: Combination) -> tuple[float, float, int, int]:
            own = [(name, repr(value)) for name, value in one.values.items()]
            new = [name for name, value in own if (name, value) not in seen]
            expected = sum(effects.get(value, 0.0) for value in own)
            known = sum(count[name] for name in new)
            return (len(new) or math.inf, _apart(one, best) if new else expected, known, one.index)

        return min(left, key=rank)


def _apart(one: Combination, other: Combination) -> int:
    """How many settings have other values."""
    return sum(other.values.get(name) != value for name, value in one.values.items())


def _effects(priced: Iterable[Combination]) -> dict[tuple[str, str], float]:
    """By setting and value: by how much the logarithm of a step's time is above what it is on average."""
    logs: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for one in priced:
        for name, value in one.values.items():
            logs[name, repr(value)].append(math.log(max(one.step_time_s, 1e-12)))
    every = [log for found in logs.values() for log in found]
    mean = sum(every) / len(every) if every else 0.0
    return {value: sum(found) / len(found) - mean for value, found in logs.items()}


def rows_of(every: Sequence[Combination]) -> SettingsTried:
    """What there is to tell, the best first, what has no plan last."""
    seen = [one for one in every if one.seen]
    missed = sum(one.others or 1 for one in every if not one.seen)
    ranked = sorted(seen, key=lambda one: (one.step_time_s, one.is_out, one.index))
    return SettingsTried(rows=tuple(_rows(ranked)), not_looked_at=missed)


def _rows(ranked: Sequence[Combination]) -> Iterator[SettingsRow]:
    for one in ranked:
        yield SettingsRow(
            settings=one.values,
            how="searched" if one.found is not None else "priced" if one.priced is not None else "",
            bound_s=None if math.isinf(one.bound_s) else one.bound_s,
            step_time_s=one.priced.step_time_s if one.priced else None,
            peak_bytes=one.priced.peak_bytes if one.priced else None,
            why=one.why or ("" if one.is_known else LATE),
        )
