"""Which layer of a model each argument belongs to, by the numbers in their paths: ``layers/3/q``, ``h.3.attn``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

FEWEST = 4
"""Of fewer layers none are left out."""

NUMBER = re.compile(r"\d+")

Words = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """What a path is: of which ``layer``, and what it is of it (the path with a gap for the number)."""

    layer: int
    form: tuple[str, str]


@dataclass(frozen=True, slots=True)
class Family:
    """Layers that are numbered. ``prefixes`` are the beginnings of their paths up to the number."""

    prefixes: frozenset[str]
    num_paths: int

    def member(self, path: str) -> Member | None:
        """What a path is in the family; None for one that is of no layer."""
        for found in NUMBER.finditer(path):
            if path[: found.start()] in self.prefixes:
                return Member(int(found[0]), (path[: found.start()], path[found.end() :]))
        return None


def families(paths: Collection[str]) -> list[Family]:
    """The families of layers that the paths are of, the one with most paths first.

    A family's layers are numbered in a row, and what is kept of each, as an optimiser's state, has the same numbers
    under a path that ends alike.
    """
    numbers: dict[str, set[int]] = {}
    counts: dict[str, int] = {}
    for path in paths:
        for found in NUMBER.finditer(path):
            prefix = path[: found.start()]
            numbers.setdefault(prefix, set()).add(int(found[0]))
            counts[prefix] = counts.get(prefix, 0) + 1
    rows = {prefix: own for prefix, own in numbers.items() if _is_row(own)}
    outer = {prefix for prefix in rows if not any(_is_inside(prefix, other) for other in rows)}
    merged: dict[Words, list[str]] = {}
    for prefix in sorted(outer, key=lambda each: (each.count("/"), each)):
        merged.setdefault(_tail(prefix, merged), []).append(prefix)
    found_ = [Family(frozenset(own), sum(counts[prefix] for prefix in own)) for own in merged.values()]
    return sorted(found_, key=lambda family: -family.num_paths)


def _is_row(numbers: Collection[int]) -> bool:
    return len(numbers) >= FEWEST and max(numbers) - min(numbers) == len(numbers) - 1


def _is_inside(prefix: str, other: str) -> bool:
    """Whether a number stands behind another one's place."""
    return prefix != other and prefix.startswith(other) and prefix[len(other) :][:1].isdigit()


def _tail(prefix: str, known: Mapping[Words, object]) -> Words:
    """How a prefix ends that is another's counterpart, or its own words but for the argument's name."""
    words = tuple(prefix.split("/"))
    for tail in known:
        if words[len(words) - len(tail) :] == tail:
            return tail
    return words[1:] or words
