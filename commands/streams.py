"""The standard streams: what goes to which, and that none of them closed, full or narrow ends in a traceback."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

from ..dsl.errors import PlanError, Problem, problem

SCHEMA_VERSION = 1


def open_streams() -> None:
    """Gives a process that was started without standard streams some, and the output every character."""
    sys.stdout = sys.stdout or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


@contextmanager
def native_output_on_stderr() -> Iterator[None]:
    """What libraries print past Python (Gloo does) goes to the standard error, so that an answer stands alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def write(text: str) -> None:
    """Writes to the standard output; where nobody reads on, that changes no answer."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        close(sys.stdout)
    except OSError as error:
        close(sys.stdout)
        raise PlanError([problem("MW071", reason=error.strerror or str(error))]) from None


def write_json(command: str, **fields: Any) -> None:
    """Prints a command's answer as one JSON object."""
    write(json.dumps({"schema_version": SCHEMA_VERSION, "command": command, **fields}, indent=2) + "\n")


def write_problems(problems: Sequence[Problem]) -> None:
    """Shows problems on the standard error."""
    if problems:
        from ..render import show_problems

        show_problems(problems)


def close(stream: TextIO) -> None:
    """Sends what is left in the buffer nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
