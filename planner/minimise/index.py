"""Which of some paths a pattern matches, as bits of a number: found by its ends, not by trying every path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from ...dsl.rule_matches import without_turn
from .pattern_texts import ANY, DEEP, Segments, is_wild

Key = tuple[str, ...]


class Index:
    """Paths, and those of computed values without their turns: a pattern that matches either matches the value."""

    def __init__(self, paths: Sequence[str]):
        self.segments = [tuple(path.split("/")) for path in paths]
        wholes = (without_turn(path) for path in paths)
        turned = {number: tuple(whole.split("/")) for number, whole in enumerate(wholes) if whole != paths[number]}
        self._tables = [_Table(dict(enumerate(self.segments))), *([_Table(turned)] if turned else [])]

    def matching(self, pattern: Segments) -> int:
        """The paths that ``pattern`` matches: one with at most one ``**``, or ``word/**/word/**``."""
        found = 0
        for words in product(*pattern):
            for table in self._tables:
                found |= table.matching(words)
        return found

    def candidates(self, number: int, anchor: int) -> Iterator[Segments]:
        """Patterns that match path ``number`` and keep its first ``anchor`` segments."""
        for form in _forms(self.segments[number], anchor):
            words = tuple((segment,) for segment in form)
            yield words
            for i in range(min(anchor, len(form)), len(form) + 1):
                for j in range(i, len(form) + 1):
                    if not (j < len(form) and is_wild(words[j])):
                        yield (*words[:i], DEEP, *words[j:])
        if anchor == 1:
            words = tuple((segment,) for segment in self.segments[number])
            yield from ((words[0], DEEP, word, DEEP) for word in words[1:-1] if not word[0].isdigit())


class _Table:
    """Paths by the words at their places, from the front and from the back; pathless places are zero."""

    def __init__(self, paths: Mapping[int, Key]):
        self.front: dict[tuple[int, str], int] = {}
        self.back: dict[tuple[int, str], int] = {}
        self.holds: dict[str, int] = {}
        self.lengths: dict[int, int] = {}
        for number, segments in paths.items():
            self._add(segments, 1 << number)

    def _add(self, segments: Key, bit: int) -> None:
        for i, segment in enumerate(segments):
            _put(self.front, (i, segment), bit)
            _put(self.back, (len(segments) - i, segment), bit)
            if i:
                _put(self.holds, segment, bit)
        _put(self.lengths, len(segments), bit)

    def matching(self, words: Key) -> int:
        """The paths that a pattern of one word a segment matches."""
        if DEEP[0] not in words:
            return self._begins(words) & self.lengths.get(len(words), 0)
        first = words.index(DEEP[0])
        head, tail = words[:first], words[first + 1 :]
        if DEEP[0] in tail:
            return self._begins(head) & self.holds.get(tail[0], 0)
        return self._begins(head) & self._ends(tail) & self._at_least(len(head) + len(tail))

    def _begins(self, words: Key) -> int:
        return _common(self.front.get((i, word), 0) for i, word in enumerate(words) if word != ANY[0])

    def _ends(self, words: Key) -> int:
        return _common(self.back.get((len(words) - i, word), 0) for i, word in enumerate(words) if word != ANY[0])

    def _at_least(self, length: int) -> int:
        found = 0
        for each, bits in self.lengths.items():
            found |= bits if each >= length else 0
        return found


def _forms(segments: Key, anchor: int) -> list[Key]:
    """A path's segments as they are and, where some behind the anchor are digits, with those as ``*``; a computed
    value's less its turn.
    """
    whole = tuple(without_turn("/".join(segments)).split("/"))
    if whole != segments:
        return [whole, segments]
    general = tuple(ANY[0] if s.isdigit() and i >= anchor else s for i, s in enumerate(segments))
    return [general, segments] if general != segments else [segments]


def _put(table: dict[Any, int], key: Any, bit: int) -> None:
    table[key] = table.get(key, 0) | bit


def _common(masks: Iterable[int]) -> int:
    found = ~0
    for mask in masks:
        found &= mask
    return found
