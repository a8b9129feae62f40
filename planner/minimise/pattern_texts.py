"""Patterns as they are built up: one set of words a segment, ``*`` or ``**``; two that are much alike become one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from ...dsl.patterns import MAX_ALTERNATIVES, literal

Words = tuple[str, ...]
Segments = tuple[Words, ...]

ANY: Words = ("\0",)  # no path has it: a segment may well be called "*"
DEEP: Words = ("\0\0",)
MAX_MERGED = 72  # characters of a pattern that is put together of several

_PLAIN = re.compile(r"[A-Za-z0-9_.~:<> ]+")


def is_wild(segment: Words) -> bool:
    """Whether a segment is ``*`` or ``**``."""
    return segment in (ANY, DEEP)


@lru_cache(maxsize=2**16)
def merged(one: Segments, other: Segments) -> Segments | None:
    """A pattern that matches what ``one`` and ``other`` match, where they differ in the words of one segment or two.

    Of two it matches each word of the one with each of the other, so more than both.
    """
    if len(one) != len(other) or sum(a != b for a, b in zip(one, other, strict=True)) not in (1, 2):
        return None
    found = tuple(a if a == b else tuple(dict.fromkeys([*a, *b])) for a, b in zip(one, other, strict=True))
    changed = [words for words, before in zip(found, one, strict=True) if words != before]
    if not all(_PLAIN.fullmatch(word) for words in changed for word in words):
        return None
    several = [len(words) for words in found if len(words) > 1]
    fits = len(several) < 3 and max(several) <= MAX_ALTERNATIVES and len(text_of(found)) <= MAX_MERGED
    return found if fits else None


def text_of(segments: Segments) -> str:
    """The pattern's text."""
    return "/".join(map(_segment, segments))


def _segment(words: Words) -> str:
    if is_wild(words):
        return "*" if words == ANY else "**"
    if len(words) == 1:
        return literal(words[0]) or "*"
    head = _common(words)
    end = _common([word[len(head) :][::-1] for word in words])[::-1]
    apart = end and not head  # {mu,nu} rather than [mn]u
    if apart or not all(len(word) == len(head) + len(end) + 1 for word in words):
        head, end = head[: _last_mark(head)], ""
    return head + _choice([word[len(head) : len(word) - len(end)] for word in words]) + end


def _last_mark(text: str) -> int:
    """Where the last whole word of a text begins."""
    return max(i + 1 for i, letter in enumerate("/" + text) if not letter.isalnum()) - 1


def _common(words: Sequence[str]) -> str:
    """What all words begin with."""
    shortest = min(words, key=len)
    differing = (i for i, letter in enumerate(shortest) if any(word[i] != letter for word in words))
    return shortest[: next(differing, len(shortest))]


def _choice(middles: Sequence[str]) -> str:
    """One of some texts: a class where they are all single letters or digits."""
    if all(len(m) == 1 and m.isalnum() for m in middles):
        return f"[{_range(''.join(middles))}]"
    return f"{{{','.join(middles)}}}"


def _range(letters: str) -> str:
    """The characters of a class; four or more that follow each other as a range."""
    ordered = sorted(letters)
    codes = [ord(letter) for letter in ordered]
    in_a_row = len(codes) > 3 and codes == list(range(codes[0], codes[0] + len(codes)))
    return f"{ordered[0]}-{ordered[-1]}" if in_a_row else letters
