"""Work shared with a process beside this one."""

from __future__ import annotations

import os
import pickle
import select
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")

TOKEN_BYTES = 4
MOST = 2**14  # so that a pipe holds all tokens at once
LEAST_S, PATIENT = 5.0, 4.0
"""How long the fork is waited for, whose last number is left once this process has none: so much, and so many times as
long as this one worked. One that never answers was seen once in a hundred searches or so.
"""


def shared(work: Callable[[int], T], count: int) -> list[T]:
    """``work`` of every number below ``count``, which must hang on nothing else and can be pickled.

    A fork of this process, where there is a core for it, takes one number after the other, as this one does: those that
    take longest should come first. This process must have no threads that hold locks. Where the fork fails, or does not
    answer, all is done here.
    """
    if not 1 < count <= MOST or sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2:
        return [work(number) for number in range(count)]
    found = _found(work, count)
    return [found[number] if number in found else work(number) for number in range(count)]


def _found(work: Callable[[int], T], count: int) -> dict[int, T]:
    """The work of the numbers that the two processes took; nothing where there is no pipe for all, or no fork."""
    tokens, given = os.pipe()
    answers, answering = os.pipe()
    parent = os.getpid()
    try:
        os.set_blocking(given, False)
        sent = _sent(given, b"".join(number.to_bytes(TOKEN_BYTES, "little") for number in range(count)))
        os.close(given)
        other = os.fork() if sent else None
    except OSError:
        other = None
    if other == 0:
        os.close(answers)  # or it would wait for itself to read what it answers
        _answer(work, tokens, answering, parent)
    os.close(answering)
    begin_s = time.monotonic()
    try:
        own = _taken(work, tokens) if other is not None else {}
        patience_s = LEAST_S + PATIENT * (time.monotonic() - begin_s)
        return own | _received(answers, patience_s) if other is not None else {}
    finally:
        os.close(tokens)
        os.close(answers)
        if other is not None:
            with suppress(ProcessLookupError):
                os.kill(other, signal.SIGKILL)
            os.waitpid(other, 0)


def _sent(given: int, tokens: bytes) -> bool:
    """Whether a pipe holds all of them."""
    try:
        return os.write(given, tokens) == len(tokens)
    except BlockingIOError:
        return False


def _taken(work: Callable[[int], T], tokens: int, parent: int | None = None) -> dict[int, T]:
    """The work of the numbers that this process takes, until there are none left, or whose parent it is has ended."""
    found = {}
    while (parent in (None, os.getppid())) and (token := os.read(tokens, TOKEN_BYTES)):
        number = int.from_bytes(token, "little")
        found[number] = work(number)
    return found


def _answer(work: Callable[[int], T], tokens: int, answering: int, parent: int) -> None:
    """The fork's part; it ends there, without what a process does when it ends."""
    with suppress(BaseException), os.fdopen(answering, "wb") as stream:
        pickle.dump(_taken(work, tokens, parent), stream, pickle.HIGHEST_PROTOCOL)
    os._exit(0)


def _received(answers: int, patience_s: float) -> dict[int, T]:
    """What the fork found; nothing where it failed, or does not begin to answer in time."""
    poll = select.poll()
    poll.register(answers, select.POLLIN)
    if not poll.poll(1e3 * patience_s):
        return {}
    with os.fdopen(os.dup(answers), "rb") as stream, suppress(EOFError, pickle.UnpicklingError):
        found: dict[int, T] = pickle.load(stream)
        return found
    return {}
