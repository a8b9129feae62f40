"""What is sound of a plan file that has problems, so that the rest of it can be checked in the same go.

A key with a problem is left out, and with it what would only seem wrong without it; a rule with a problem says
``infer``, so that it still decides the tensors that it matches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from .errors import Problem
from .plan import Place, Plan
from .tree import Branch, Entry, Leaf

_TOGETHER = (("topology", "mesh"), ("model", "with"))
_NOT_CERTAIN = ("MW103", "MW120", "MW122")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A plan as far as it could be read, and the problems of its text.

    With problems, ``plan`` is what is sound of it (None where that is nothing), and not to be used but for checking.
    """

    plan: Plan | None
    problems: tuple[Problem, ...]

    def also(self, found: Iterable[Problem]) -> tuple[Problem, ...]:
        """The text's problems and those ``found`` in the sound part, without any that what is left out may explain."""
        return (*self.problems, *(p for p in found if p.severity == "error" and p.code not in _NOT_CERTAIN))


def sound_part(root: Branch, problems: Iterable[Problem]) -> Branch:
    """The document without what the problems stand at."""
    flawed: dict[str, list[Place]] = {key: [] for key in root.entries}
    for found in problems:
        key = _at(root.entries, found.place)
        if key is not None and found.place:
            flawed[key].append(found.place)
        twice = found.numbers.get("key") if found.code == "MW010" else None
        if twice in flawed and found.place:
            flawed[twice].append(root.entries[twice].place)
    lost = {key for key, places in flawed.items() if places and not _is_kept(root.entries[key], places)}
    lost |= {key for pair in _TOGETHER if lost & set(pair) for key in pair}
    kept = {key: _mended(entry, flawed[key]) for key, entry in root.entries.items() if key not in lost}
    version = Entry(key="meshwright", place=root.place, value=Leaf(value=1, place=root.place))
    return replace(root, entries={**kept, "meshwright": version})


def _at(entries: Mapping[str, Entry], place: Place | None) -> str | None:
    """The entry that a place lies in: the last one that begins before it."""
    begun = [entry for entry in entries.values() if place and _position(entry.place) <= _position(place)]
    return max(begun, key=lambda entry: _position(entry.place)).key if begun else None


def _position(place: Place) -> tuple[int, int]:
    return place.line, place.column


def _is_kept(entry: Entry, places: Iterable[Place]) -> bool:
    """Whether what is wrong is inside single rules, which can be mended."""
    rules = entry.value
    return entry.key == "tensors" and isinstance(rules, Branch) and all(_at(rules.entries, p) for p in places)


def _mended(entry: Entry, places: Iterable[Place]) -> Entry:
    if not isinstance(entry.value, Branch) or entry.key != "tensors":
        return entry
    rules = dict(entry.value.entries)
    for place in places:
        pattern = _at(rules, place)
        if pattern is not None:
            rule = rules[pattern]
            rules[pattern] = replace(rule, value=Leaf(value="infer", place=rule.value.place))
            if _position(place) < _position(rule.value.place):
                del rules[pattern]
    return replace(entry, value=replace(entry.value, entries=rules))
