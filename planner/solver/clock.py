"""The time that a solve may take: a flag that compiled code looks at, set when the time is over or the user asks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType

import numpy as np

from .arrays import Flags

LOOK_EVERY_S = 0.05


class Clock:
    """A context in which a thread sets ``halt[0]`` after ``limit_s`` seconds, or once ``stop`` says so."""

    def __init__(self, limit_s: float, stop: Callable[[], bool] | None = None) -> None:
        self.halt: Flags = np.zeros(1, np.bool_)
        self._begin_s = time.monotonic()
        self._limit_s = limit_s
        self._stop = stop or _never
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Clock:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        self._thread.join()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._begin_s

    @property
    def over(self) -> bool:
        """Whether to end."""
        return bool(self.halt[0])

    def _watch(self) -> None:
        while not self._left.wait(LOOK_EVERY_S):
            if self._stop() or self.elapsed_s > self._limit_s:
                self.halt[0] = True


def _never() -> bool:
    return False
