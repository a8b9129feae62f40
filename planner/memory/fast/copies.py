"""The copies into fast memory: one after the other, each needed by a point of its own.

XLA's memory space assignment lets a copy begin only where it and all that were to be made before are done in time
(``AsynchronousCopyResource``), and so many may be under way at once (``max_outstanding_prefetches``).
"""

from __future__ import annotations

from bisect import bisect_right, insort

MOST_UNDER_WAY = 40


class Copies:
    """Copies in the order in which they begin, by when each begins, is needed and takes, in seconds; ``_ends`` is when
    they are needed in the order of that.
    """

    def __init__(self) -> None:
        self._ends: list[float] = []
        self._begin: list[float] = []
        self._needed: list[float] = []
        self._takes: list[float] = []
        self._done: list[float] = []

    def have_time(self, begin_s: float, needed_s: float, takes_s: float) -> bool:
        """Whether another one would be done when it is needed, and so would all that begin after it."""
        number = bisect_right(self._begin, begin_s)
        done = max(begin_s, self._done[number - 1] if number else begin_s) + takes_s
        if done > needed_s or self._under_way(begin_s, needed_s) >= MOST_UNDER_WAY:
            return False
        for later in range(number, len(self._begin)):
            done = max(done, self._begin[later]) + self._takes[later]
            if done <= self._done[later]:
                return True
            if done > self._needed[later]:
                return False
        return True

    def add(self, begin_s: float, needed_s: float, takes_s: float) -> None:
        """Has another one be made."""
        number = bisect_right(self._begin, begin_s)
        insort(self._ends, needed_s)
        self._begin.insert(number, begin_s)
        self._needed.insert(number, needed_s)
        self._takes.insert(number, takes_s)
        done = self._done[number - 1] if number else begin_s
        self._done.insert(number, max(begin_s, done) + takes_s)
        for later in range(number + 1, len(self._begin)):
            done = max(self._done[later - 1], self._begin[later]) + self._takes[later]
            if done <= self._done[later]:
                break
            self._done[later] = done

    def copy(self) -> Copies:
        """The same copies, to which others may be added."""
        made = Copies()
        made._begin, made._needed = self._begin.copy(), self._needed.copy()
        made._takes, made._done, made._ends = self._takes.copy(), self._done.copy(), self._ends.copy()
        return made

    def _under_way(self, begin_s: float, needed_s: float) -> int:
        """How many are under way in between: those that begin before its end, but for those needed by its begin."""
        return bisect_right(self._begin, needed_s) - bisect_right(self._ends, begin_s)
