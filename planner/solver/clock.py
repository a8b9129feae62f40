"""The time that a solve may take: a flag that compiled code looks at, set when the time is over or the user asks."""

from __future__ import annotations

import threading
import time
from types import TracebackType

import numpy as np

from .arrays import Flags


class Clock:
    """A context that sets ``halt[0]`` after ``limit_s`` seconds; whoever shares the flag may set it before."""

    def __init__(self, limit_s: float, halt: Flags | None = None) -> None:
        self.halt: Flags = np.zeros(1, np.bool_) if halt is None else halt
        self._begin_s = time.monotonic()
        self._timer = threading.Timer(limit_s, self._ring)
        self._timer.daemon = True

    def __enter__(self) -> Clock:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    @property
    def elapsed_s(self) -> float:
        """Seconds since the clock was made."""
        return time.monotonic() - self._begin_s

    @property
    def over(self) -> bool:
        """Whether to end."""
        return bool(self.halt[0])

    def _ring(self) -> None:
        self.halt[0] = True
