"""Problems that a user can mend: a code, a place, the numbers, a remedy. The texts stand in ``messages.py``."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .messages import MESSAGES
from .plan import Place

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
            "line": place.line if place else None,
            "column": place.column if place else None,
            "numbers": self.numbers,
        }


class PlanError(ValueError):
    """A plan, a file or a call that cannot be used. ``problems`` holds every one found, in the order of their places."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems: tuple[Problem, ...] = tuple(sorted(problems, key=_position))
        super().__init__("\n".join(map(str, self.problems)))


def problem(code: str, place: Place | None = None, *, severity: Severity = "error", **numbers: Any) -> Problem:
    """The problem with this code; ``numbers`` fill the text that ``messages.py`` has for it."""
    text = MESSAGES[code]
    return Problem(
        code=code,
        message=text.message.format(**numbers),
        remedy=text.remedy.format(**numbers),
        place=place,
        severity=severity,
        numbers={key: _plain(value) for key, value in numbers.items()},
    )


def raise_errors(problems: Iterable[Problem]) -> None:
    """Raises ``PlanError`` with the errors among ``problems``, if there are any; notes alone do not raise."""
    errors = [p for p in problems if p.severity == "error"]
    if errors:
        raise PlanError(errors)


def suggest(word: str, choices: Iterable[str], *, limit: int = 3) -> str:
    """The nearest legal choices, as a phrase that ends a remedy: ``did you mean 'topology'?``"""
    known = list(choices)
    near = difflib.get_close_matches(word, known, n=limit, cutoff=0.6)
    if near:
        return "Did you mean " + " or ".join(f"'{n}'" for n in near) + "?"
    return "Legal here: " + listing(known) + "." if known else "Nothing is legal here."


def listing(items: Sequence[Any], *, limit: int = 8) -> str:
    """The first items, comma-separated, and how many more there are."""
    shown = ", ".join(map(str, items[:limit]))
    return shown if len(items) <= limit else f"{shown}, and {len(items) - limit} more"


def _position(problem: Problem) -> tuple[str, int, int]:
    place = problem.place
    return (place.file or "", place.line, place.column) if place else ("", 0, 0)


def _plain(value: Any) -> Any:
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(v) for v in value]
    return str(value)
