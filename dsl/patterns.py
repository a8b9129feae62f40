"""Patterns of tensor paths: ``params/**/moe/w[io]``.

``*`` and ``?`` stand within a segment, ``**`` for any number of whole segments, ``[io]`` for one of some characters,
``{wi,wo}`` for one of some words. ``params/**`` matches everything under ``params``, and ``params`` itself.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from .errors import flaw, shorten

MAX_LENGTH = 500
MAX_ALTERNATIVES = 64

_BRACES = re.compile(r"\{([^{}]*)\}")
_CLASS = re.compile(r"\[[!^]?\]?[^\]/]*\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """A compiled pattern. Matching takes time linear in the path, times the pattern's length at worst.

    ``words`` are what the last segments of the paths that it matches can begin with before a dot (``dot_general`` of
    ``dot_general.2.in1``); None where that is open.
    """

    text: str
    regex: re.Pattern[str] = field(compare=False, repr=False)
    words: frozenset[str] | None = field(compare=False, repr=False)

    def matches(self, path: str) -> bool:
        """Whether the pattern stands for ``path``, the whole of it."""
        return self.regex.fullmatch(path) is not None


@lru_cache(maxsize=4096)
def compile_pattern(text: str) -> Pattern:
    """The compiled pattern. Raises ``FlawError`` where ``text`` is none."""
    check_pattern(text)
    branches = _alternatives(text)
    regex = re.compile("|".join(map(_path_regex, branches)), re.DOTALL)
    words = frozenset(map(_last_word, branches))
    return Pattern(text=text, regex=regex, words=None if "" in words else words)


def _last_word(branch: str) -> str:
    """What stands before the first dot of a pattern's last segment; nothing where that is open."""
    word, dot, _ = branch.rpartition("/")[2].partition(".")
    return word if dot and not re.search(r"[*?\[]", word) else ""


def literal_prefix(text: str) -> list[str]:
    """The segments that a pattern begins with before its first wildcard."""
    segments = []
    for segment in text.split("/"):
        if re.search(r"[*?\[{]", segment):
            break
        segments.append(segment)
    return segments


@lru_cache(maxsize=16384)
def literal(text: str) -> str:
    """The pattern that matches the path ``text`` alone: its special characters as classes of one."""
    return re.sub(r"[*?\[\]{}]", lambda match: f"[{match.group()}]", text)


def check_pattern(text: str) -> str:
    """``text``, if it is a pattern. Raises ``FlawError``: too long, or segments, classes or braces are malformed."""
    if len(text) > MAX_LENGTH:
        raise flaw("MW052", text=shorten(text), length=len(text), most=MAX_LENGTH)
    offset = 0
    for segment in text.split("/"):
        if not segment:
            raise flaw("MW053", offset, text=shorten(text))
        if "**" in segment and segment != "**":
            raise flaw("MW054", offset + segment.index("**"), text=shorten(text), segment=shorten(segment))
        offset += len(segment) + 1
    bare = _CLASS.sub(lambda match: "." * len(match.group()), text)
    bare = _BRACES.sub(lambda match: match.group() if "/" in match.group() else "." * len(match.group()), bare)
    stray = re.search(r"[\[\]{}]", bare)
    if stray:
        raise flaw("MW055", stray.start(), text=shorten(text), character=stray.group())
    for match in _CLASS.finditer(text):
        _check_class(match)
    if _count(text) > MAX_ALTERNATIVES:
        raise flaw("MW056", text=shorten(text), count=_count(text), most=MAX_ALTERNATIVES)
    return text


def _check_class(match: re.Match[str]) -> None:
    """Raises ``FlawError`` for a class without characters or with a range that runs backwards."""
    spans = _spans(match.group())
    if not spans or any(a > b for a, b in spans):
        raise flaw("MW057", match.start(), text=shorten(match.string), chosen=shorten(match.group()))


def _count(text: str) -> int:
    """How many patterns without braces a pattern stands for."""
    return math.prod(len(piece) for piece in _pieces(text))


def _alternatives(text: str) -> list[str]:
    """The patterns without braces that a pattern with braces stands for."""
    branches = [""]
    for piece in _pieces(text):
        branches = [branch + choice for branch in branches for choice in piece]
    whole = [segment == "**" for segment in text.split("/")]
    return [_same_depth(branch, whole) for branch in branches if "" not in branch.split("/")]


def _same_depth(branch: str, whole: list[bool]) -> str:
    """``branch`` with each ``**`` that came of braces (``{*,x}*``) as the ``*`` that it is."""
    segments = zip(branch.split("/"), whole, strict=True)
    return "/".join(s if deep or s.strip("*") else "*" for s, deep in segments)


def _pieces(text: str) -> Iterator[list[str]]:
    """The text cut at its braces: for each piece the words that can stand there. Braces inside a class are letters."""
    end = 0
    hidden = _CLASS.sub(lambda match: "." * len(match.group()), text)
    for match in _BRACES.finditer(hidden):
        yield [text[end : match.start()]]
        yield _words(text[match.start(1) : match.end(1)], match.group(1))
        end = match.end()
    yield [text[end:]]


def _words(text: str, hidden: str) -> list[str]:
    """``text`` cut at the commas that are commas in ``hidden`` too."""
    commas = [-1, *(i for i, character in enumerate(hidden) if character == ","), len(text)]
    return [text[a + 1 : b] for a, b in pairwise(commas)]


def _path_regex(text: str) -> str:
    """One regular expression for a pattern without braces.

    Whatever stands between two ``**`` has a fixed number of segments, so its first match is as good as any later one
    and the search need not be taken back (an atomic group): no pattern can make matching slow.
    """
    chunks: list[list[str]] = [[]]
    for segment in text.split("/"):
        if segment == "**":
            chunks.append([])
        else:
            chunks[-1].append(_segment_regex(segment))
    if len(chunks) == 1:
        return "/".join(chunks[0])
    first, *middle, last = chunks
    inner = "".join(rf"(?>(?:[^/]+/)*?{_ended(chunk)})" for chunk in middle if chunk)
    if not last:
        return _everything_below(first, middle)
    return f"{_ended(first)}{inner}(?:[^/]+/)*{'/'.join(last)}"


def _everything_below(first: list[str], middle: list[list[str]]) -> str:
    """The regular expression of a pattern that ends in ``**``: what it ends on, or anything under it."""
    solid = [chunk for chunk in middle if chunk]
    if not solid:
        return f"{'/'.join(first)}(?:/.*)?" if first else ".*"
    begin = _ended(first)
    inner = "".join(rf"(?>(?:[^/]+/)*?{_ended(chunk)})" for chunk in solid[:-1])
    return rf"{begin}{inner}(?>(?:[^/]+/)*?{'/'.join(solid[-1])}(?=/|\Z)).*"


def _ended(segments: list[str]) -> str:
    return "".join(f"{segment}/" for segment in segments)


def _segment_regex(segment: str) -> str:
    """A segment's regular expression; what stands between two ``*`` is atomic for the same reason."""
    first, *rest = re.split(r"\*+", _CLASS.sub(_hide_stars, segment))
    if not rest:
        return _fixed(first)
    *middle, last = rest
    inner = "".join(f"(?>[^/]*?{_fixed(chunk)})" for chunk in middle if chunk)
    return f"{_fixed(first)}{inner}[^/]*{_fixed(last)}"


def _hide_stars(match: re.Match[str]) -> str:
    return match.group().replace("*", "\0")


def _fixed(text: str) -> str:
    """The regular expression of characters, ``?`` and classes."""
    parts = re.split(r"(\[[!^]?\]?[^\]/]*\]|\?)", text)
    return "".join(map(_atom, parts))


def _atom(part: str) -> str:
    if part == "?":
        return "[^/]"
    if not (part.startswith("[") and part.endswith("]")):
        return re.escape(part)
    spans = _spans(part.replace("\0", "*"))
    letters = "".join(re.escape(a) if a == b else f"{re.escape(a)}-{re.escape(b)}" for a, b in spans)
    return f"[^/{letters}]" if part[1] in "!^" else f"[{letters}]"


def _spans(written: str) -> list[tuple[str, str]]:
    """The characters of a class such as ``[a-fx]``, as ranges."""
    inside = written[2:-1] if written[1] in "!^" else written[1:-1]
    return [(m[0][0], m[0][-1]) for m in re.finditer(r".-.|.", inside, re.DOTALL)]
