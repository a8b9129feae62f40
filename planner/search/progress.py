"""What a search says while it goes on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of a search.

    ``tried`` of ``total`` candidates (a mesh with a remat policy) are settled. ``best_s`` is the best step time so
    far, infinite before the first; no plan of the meshes tried takes less than ``bound_s``. ``doing`` is what goes on.
    """

    doing: str
    tried: int
    total: int
    best_s: float
    bound_s: float
    elapsed_s: float
    left_s: float

    @property
    def gap(self) -> float:
        """How far from the bound the best is at most, as a part of it."""
        return gap_of(self.best_s, self.bound_s)


def gap_of(step_time_s: float, bound_s: float) -> float:
    """The part of a step time that is above the bound; infinite without a step time."""
    if math.isinf(step_time_s):
        return math.inf
    return max(0.0, (step_time_s - bound_s) / step_time_s) if step_time_s > 0 else 0.0


@dataclass(slots=True)
class Excused:
    """Seconds that do not count."""

    seconds: float = 0.0


class Clock:
    """The time that a search has, and whether the user wants it to end. It began at ``begin_s``, now if None, as
    ``time.monotonic`` counts. It has ``longer_s`` more until it is told that something was ``found`` that needs it.
    """

    def __init__(
        self,
        limit_s: float,
        stop: Callable[[], bool] | None = None,
        excused: Excused | None = None,
        *,
        begin_s: float | None = None,
        longer_s: float = 0.0,
    ) -> None:
        self._begin_s = time.monotonic() if begin_s is None else begin_s
        self._excused = excused or Excused()
        self._limit_s = limit_s - self._excused.seconds
        self._longer_s = longer_s
        self._stop = stop or _never

    @property
    def elapsed_s(self) -> float:
        """Seconds since the search began."""
        return time.monotonic() - self._begin_s

    @property
    def left_s(self) -> float:
        """Seconds until it has to end."""
        return max(0.0, self._end_s - self.elapsed_s)

    @property
    def end(self) -> float:
        """When it has to end, as ``time.monotonic`` counts: now, once the user wants it."""
        return self._begin_s + (0.0 if self._stop() else self._end_s)

    @property
    def stopped(self) -> bool:
        """Whether the user wants it to end."""
        return self._stop()

    @property
    def over(self) -> bool:
        """Whether it has to end."""
        return self._stop() or self.left_s <= 0

    def part(self, share: float, *, as_found: bool = False) -> Clock:
        """A clock that ends when this share of what is left is gone, or will be left ``as_found``; what is excused on
        either is on both.
        """
        longer_s = self._longer_s if as_found else 0.0
        return Clock(max(0.0, self.left_s - longer_s) * share, self._stop, self._excused)

    def within(self, seconds: float) -> Clock:
        """A clock that ends in so many seconds, or when this one does."""
        return self.part(min(seconds / max(self.left_s, seconds), 1.0))

    def until(self, other: Clock) -> None:
        """Ends when another one does."""
        self._limit_s, self._longer_s = self.elapsed_s + other.left_s - self._excused.seconds, 0.0

    def found(self) -> None:
        """Something was found: it has no longer than else."""
        self._longer_s = 0.0

    def excuse(self, seconds: float) -> None:
        """Adds to the time that it has."""
        self._excused.seconds += seconds

    @property
    def _end_s(self) -> float:
        return self._limit_s + self._longer_s + self._excused.seconds


def _never() -> bool:
    return False
