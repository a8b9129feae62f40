"""Patterns as they are built up: one set of words a segment, ``*`` or ``**``; two that differ in one become one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os.path import commonprefix

from ...dsl.patterns import MAX_ALTERNATIVES, literal

Words = tuple[str, ...]
Segments = tuple[Words, ...]

ANY: Words = ("\0",)  # no path has it: a segment may well be called "*"
DEEP: Words = ("\0\0",)
MAX_MERGED = 60  # characters of a pattern that is put together of several

_PLAIN = re.compile(r"[A-Za-z0-9_.~:<> ]+")


def is_wild(segment: Words) -> bool:
    """Whether a segment is ``*`` or ``**``."""
    return segment in (ANY, DEEP)


def merged(one: Segments, other: Segments) -> Segments | None:
    """The pattern that matches what ``one`` and ``other`` match, where they differ in the words of one segment."""
    if len(one) != len(other):
        return None
    differing = [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b]
    if len(differing) != 1:
        return None
    at = differing[0]
    words = tuple(dict.fromkeys([*one[at], *other[at]]))
    plain = all(_PLAIN.fullmatch(word) for word in words)
    if not plain or len(words) > MAX_ALTERNATIVES:
        return None
    found = (*one[:at], words, *one[at + 1 :])
    braces = sum(len(segment) > 1 for segment in found)
    return found if braces < 3 and len(text_of(found)) <= MAX_MERGED else None


def text_of(segments: Segments) -> str:
    """The pattern's text."""
    return "/".join(map(_segment, segments))


def _segment(words: Words) -> str:
    if is_wild(words):
        return "*" if words == ANY else "**"
    if len(words) == 1:
        return literal(words[0]) or "*"
    head = commonprefix(words)
    tails = [word[len(head) :] for word in words]
    end = commonprefix([tail[::-1] for tail in tails])[::-1]
    middles = [tail[: len(tail) - len(end)] for tail in tails]
    return head + _choice(middles) + end


def _choice(middles: Sequence[str]) -> str:
    """One of some texts: a class where they are all single letters or digits."""
    if all(len(m) == 1 and m.isalnum() for m in middles):
        return f"[{''.join(middles)}]"
    return f"{{{','.join(middles)}}}"
