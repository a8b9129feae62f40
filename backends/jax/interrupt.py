"""Ctrl-C that ends a run cleanly: the first asks it to stop after the step in progress, the second kills it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any

ASKED = b"\nending after the step in progress; Ctrl-C again kills\n"


class Interrupt:
    """A context in which the first SIGINT only sets ``asked``, and says so on stderr.

    The next one kills the process, which Python's own KeyboardInterrupt does not do safely in the middle of a
    compilation; in an interactive session, or where the program has a handler of its own, it does what it did before.
    Outside the main thread, where Python has no signals, it never asks.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        interactive = hasattr(sys, "ps1")
        own_handler = self._before is not signal.default_int_handler
        signal.signal(signal.SIGINT, self._before if interactive or own_handler else signal.SIG_DFL)
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, ASKED)
