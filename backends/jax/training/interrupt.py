"""Ctrl-C that ends a run cleanly: the first asks it to stop after the step in progress, the second kills it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

ASKED = b"\nending after the step in progress; Ctrl-C again kills\n"
SHOW_CURSOR = b"\x1b[?25h"  # a live display hides it
KILLED = 130


class Interrupt:
    """A context in which the first SIGINT only sets ``asked``, and says so on stderr.

    The next one kills the process, which Python's own KeyboardInterrupt does not do safely in the middle of a
    compilation; in an interactive session, or where the program has a handler of its own, it does what it did before.
    Outside the main thread, where Python has no signals, it never asks.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: Any = None
        self._listener: _Listener | None = None

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():
            before = signal.getsignal(signal.SIGINT)
            plain = before in (signal.default_int_handler, signal.SIG_IGN)  # a script's background jobs ignore it
            kills = plain and not hasattr(sys, "ps1")
            self._listener = _Listener(self._ask) if kills else None
            self._before = signal.signal(signal.SIGINT, _leave_to_listener if kills else self._ask_and_restore)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
        if self._listener is not None:
            self._listener.close()

    def _ask_and_restore(self, number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, self._before)
        self._ask()

    def _ask(self) -> None:
        if self.asked:
            _say(SHOW_CURSOR if os.isatty(2) else b"")
            os._exit(KILLED)
        self.asked = True
        _say(ASKED)


class _Listener:
    """A thread that hears of SIGINT at once: Python's own handlers wait until a compilation, which is C++, returns."""

    def __init__(self, heard: Callable[[], None]) -> None:
        self._heard = heard
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Ends the thread."""
        signal.set_wakeup_fd(self._before)
        os.close(self._writer)
        self._thread.join()
        os.close(self._reader)

    def _listen(self) -> None:
        while numbers := os.read(self._reader, 1):
            if numbers[0] == signal.SIGINT:
                self._heard()


def _leave_to_listener(number: int, frame: FrameType | None) -> None:
    """Keeps SIGINT from raising KeyboardInterrupt."""


def _say(text: bytes) -> None:
    with suppress(OSError):  # where nobody reads any more
        os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text)
