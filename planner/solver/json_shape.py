"""JSON values taken apart strictly: what is missing, unknown or of a wrong kind is collected, not raised."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from ...dsl.errors import MAX_WORD, PlanError, problem
from ...dsl.errors import Problem as Mistake
from ...dsl.plan import Place
from .arrays import Ints

MOST_REPORTED = 20
KINDS = {
    dict: "an object",
    list: "a list",
    str: "a text",
    bool: "true or false",
    float: "a fraction",
    type(None): "null",
}


class Shape:
    """Takes values apart and remembers every mistake."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self._mistakes: list[Mistake] = []
        self._unshown = 0

    def add(self, code: str, **numbers: Any) -> None:
        """Notes a mistake; from the twentieth on only that there are more."""
        if len(self._mistakes) < MOST_REPORTED:
            self._mistakes.append(problem(code, self.place, **numbers))
        else:
            self._unshown += 1

    def raise_mistakes(self) -> None:
        """Raises ``PlanError`` if there are any."""
        more = [problem("MW811", self.place, more=self._unshown)] if self._unshown else []
        if self._mistakes:
            raise PlanError([*self._mistakes, *more])

    def mapping(self, value: Any, where: str, keys: Sequence[str], more: Sequence[str] = ()) -> dict[str, Any]:
        """An object that has these keys and, besides, no other than ``more``; empty where it is none."""
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._wrong(where, value, "an object")
            return {}
        for key in keys:
            if key not in value or value[key] is None:
                self.add("MW803", where=f"{where}.{key}", keys=", ".join([*keys, *more]))
        for key in value.keys() - {*keys, *more}:
            self.add("MW806", where=f"{where}.{key[:MAX_WORD]}", suggestion=f"Known: {', '.join([*keys, *more])}.")
        return value

    def text(self, value: Any, where: str) -> str:
        """A text; empty where it is none."""
        if not isinstance(value, str):
            self._wrong(where, value, "a text")
            return ""
        return value

    def whole(self, value: Any, where: str, least: int, most: int) -> int:
        """A whole number within bounds; the least where it is none."""
        if type(value) is not int or not least <= value <= most:
            self._wrong(where, value, f"a whole number from {least} to {most}")
            return least
        return value

    def lists(self, value: Any, where: str, least: int, most: int, each: int | None = None) -> tuple[Ints, Ints]:
        """A list of lists of whole numbers within bounds, each of a length (or any but 0): numbers flat, lengths."""
        nothing = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if value is None:
            return nothing
        if not isinstance(value, list) or any(type(part) is not list for part in value):
            self._wrong_list(value, where)
            return nothing
        lengths = np.fromiter(map(len, value), np.int64, len(value))
        for part in np.flatnonzero(lengths != each if each else lengths == 0):
            expected = f"a list of {each}" if each else "a list of at least one"
            self.add("MW804", where=f"{where}[{part}]", got=f"a list of {lengths[part]}", expected=expected)
        if set(map(type, chain.from_iterable(value))) <= {int}:
            numbers = self._numbers(value, int(lengths.sum()))
            if numbers is not None and np.all((numbers >= least) & (numbers <= most)):
                return numbers, lengths
        self._wrong_numbers(value, where, least, most)
        return nothing

    def _numbers(self, value: list[list[int]], count: int) -> Ints | None:
        try:
            return np.fromiter(chain.from_iterable(value), np.int64, count)
        except OverflowError:
            return None

    def _wrong_numbers(self, value: list[list[Any]], where: str, least: int, most: int) -> None:
        for i, part in enumerate(value):
            for j, number in enumerate(part):
                self.whole(number, f"{where}[{i}][{j}]", least, most)

    def _wrong_list(self, value: Any, where: str) -> None:
        if not isinstance(value, list):
            self._wrong(where, value, "a list of lists of whole numbers")
            return
        for i, part in enumerate(value):
            if type(part) is not list:
                self._wrong(f"{where}[{i}]", part, "a list of whole numbers")

    def _wrong(self, where: str, value: Any, expected: str) -> None:
        self.add("MW804", where=where, got=KINDS.get(type(value), str(value)[:MAX_WORD]), expected=expected)
