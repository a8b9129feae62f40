"""Problems that a user can mend: a code, a place, the numbers, a remedy. The texts stand in ``messages``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .messages import MESSAGES
from .plan import Place

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MAX_WORD = 200  # characters of a user's word that are compared or shown
Severity = Literal["error", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong (or, as a note, worth knowing), said from the user's side."""

    code: str
    message: str
    remedy: str = ""
    place: Place | None = None
    severity: Severity = "error"
    numbers: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        remedy = f"\n    {self.remedy}" if self.remedy else ""
        return f"{where}{self.code} {self.message}{remedy}"

    def as_json(self) -> dict[str, Any]:
        """The problem as plain JSON values."""
        place = self.place
        return {
            "code": self.code,
            "severity": self.severity,
            "message": self.message,
            "remedy": self.remedy,
            "file": place.file if place else None,
            "line": (place.line or None) if place else None,
            "column": (place.column if place.line else None) if place else None,
            "numbers": self.numbers,
        }


class PlanError(ValueError):
    """A plan, a file or a call that cannot be used. ``problems`` has every one found, in the order of their places."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems: tuple[Problem, ...] = tuple(sorted(problems, key=_position))
        super().__init__("\n".join(map(str, self.problems)))


def problem(code: str, place: Place | None = None, *, severity: Severity = "error", **numbers: Any) -> Problem:
    """The problem with this code; ``numbers`` fill the text that ``messages`` has for it."""
    text = MESSAGES[code]
    return Problem(
        code=code,
        message=_printable(text.message.format(**numbers)),
        remedy=_printable(text.remedy.format(**numbers)),
        place=place,
        severity=severity,
        numbers={key: _plain(value) for key, value in numbers.items()},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaw:
    """What a parser of a single word finds wrong: a code, the numbers, and how many characters into the text."""

    code: str
    offset: int = 0
    numbers: Mapping[str, Any] = field(default_factory=dict)

    def at(self, place: Place | None) -> Problem:
        """The problem that this flaw is in a text which begins at ``place``."""
        where = replace(place, column=place.column + self.offset) if place else None
        return problem(self.code, where, **self.numbers)


class FlawError(ValueError):
    """A text that cannot be parsed. It does not know where it stands; its reader does, and makes it problems."""

    def __init__(self, *flaws: Flaw):
        self.flaws = flaws
        super().__init__("; ".join(str(flaw.at(None)) for flaw in flaws))


def flaw(code: str, offset: int = 0, **numbers: Any) -> FlawError:
    """An error with a single flaw, to raise."""
    return FlawError(Flaw(code=code, offset=offset, numbers=numbers))


def raise_errors(problems: Iterable[Problem]) -> None:
    """Raises ``PlanError`` with the errors among ``problems``, if there are any; notes alone do not raise."""
    errors = [p for p in problems if p.severity == "error"]
    if errors:
        raise PlanError(errors)


def suggest(word: str, choices: Iterable[str], *, limit: int = 3) -> str:
    """The nearest legal choices, as a phrase that ends a remedy: ``did you mean 'topology'?``"""
    known = list(choices)
    near = difflib.get_close_matches(word[:MAX_WORD], known, n=limit, cutoff=0.6)
    if near:
        return "Did you mean " + " or ".join(f"'{n}'" for n in near) + "?"
    return "Legal here: " + listing(known) + "." if known else "Nothing is legal here."


def listing(items: Sequence[Any], *, limit: int = 8) -> str:
    """The first items, comma-separated, and how many more there are."""
    shown = ", ".join(map(str, items[:limit]))
    return shown if len(items) <= limit else f"{shown}, and {len(items) - limit} more"


def shorten(text: str, *, limit: int = 60) -> str:
    """The text, or its beginning where it is long: hostile input must not flood an error."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _position(problem: Problem) -> tuple[str, int, int]:
    place = problem.place
    return (place.file or "", place.line, place.column) if place else ("", 0, 0)


def _printable(text: str) -> str:
    """The text without what a terminal obeys: a file must not steer the screen of who reads about it."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", text)


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in value]
    return str(value)
