"""The characters of a plan file: read, decoded, and refused where YAML readers would disagree about them."""

from __future__ import annotations

import os
import re

from .errors import PlanError, Problem, problem, shorten
from .plan import Place

MAX_BYTES = 2**20

_FORBIDDEN = re.compile("[^\t\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_DIRECTIVE = re.compile(r"^%", re.MULTILINE)
_MOST_REPORTED = 20


def read_text(path: str) -> str:
    """The text of a file. Raises ``PlanError``: missing, unreadable, too large, not UTF-8."""
    try:
        with open(path, "rb", opener=_open_at_once) as stream:
            os.set_blocking(stream.fileno(), True)
            return decode(stream.read(MAX_BYTES + 1), path)
    except (OSError, ValueError) as error:
        if isinstance(error, PlanError):
            raise
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else str(error)
        raise PlanError([problem("MW001", Place(file=shorten(path)), reason=reason)]) from None


def _open_at_once(path: str, flags: int) -> int:
    """Opens a file without waiting: a named pipe that nobody writes to is empty, not a reason to hang."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def decode(content: bytes, file: str | None = None) -> str:
    """The text that UTF-8 ``content`` holds. Raises ``PlanError``: too large, not UTF-8."""
    _refuse_large(len(content), file)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        place = place_at(before, len(before), file)
        raise PlanError([problem("MW002", place, byte=f"0x{content[error.start]:02x}")]) from None


def clean(text: str, file: str | None = None) -> str:
    """The text with one kind of line break and no byte order mark.

    Raises ``PlanError``: too large, characters that YAML forbids or that end a line in one version of YAML only,
    directives.
    """
    _refuse_large(len(text), file)
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    problems = _forbidden(text, file)
    directive = _DIRECTIVE.search(text)
    if directive:
        problems.append(problem("MW009", place_at(text, directive.start(), file)))
    if problems:
        raise PlanError(problems)
    return text


def place_at(text: str, index: int, file: str | None) -> Place:
    """The place of the character at ``index``."""
    line = text.count("\n", 0, index)
    return Place(file=file, line=line + 1, column=index - text.rfind("\n", 0, index))


def is_writable(text: str) -> bool:
    """Whether a plan can hold ``text``, quoted where needed: no half of a surrogate pair."""
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _forbidden(text: str, file: str | None) -> list[Problem]:
    """One problem for each of the first forbidden characters; a file full of them is no plan."""
    found: list[Problem] = []
    for match in _FORBIDDEN.finditer(text):
        if len(found) == _MOST_REPORTED:
            break
        place = place_at(text, match.start(), file)
        found.append(problem("MW003", place, character=f"U+{ord(match.group()):04X}"))
    return found


def _refuse_large(size: int, file: str | None) -> None:
    if size > MAX_BYTES:
        raise PlanError([problem("MW004", Place(file=file), most=MAX_BYTES // 1024)])
