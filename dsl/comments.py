"""Comments and blank lines of a plan file: found in its text, and tied to the keys beside which they stand.

They travel in ``Plan.comments`` under the key they belong to (``mesh``, ``tensors.params/**``), and under ``$header``
and ``$end`` for the beginning and the end of the file, ``tensors$end`` for the end of a section.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .strict_yaml import Span
from .tree import Branch

HEADER = "$header"
END = "$end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comment:
    """What stands with a key: whole lines ``before`` it (an empty one is a blank line), and one ``beside`` it."""

    before: tuple[str, ...] = ()
    beside: str = ""


@dataclass(slots=True, kw_only=True)
class _Found:
    before: list[str] = field(default_factory=list)
    beside: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Anchor:
    """A key that comments can belong to."""

    line: int
    key: str
    section: str  # the block mapping that ends where this key begins, if one does


def find_comments(text: str, root: Branch, spans: Iterable[Span]) -> dict[str, Comment]:
    """The comments of a text by the key that they belong to: the one they stand beside, or the next one."""
    found: dict[str, _Found] = {}
    anchors = _anchors(root)
    position = 0
    waiting: list[tuple[int, str]] = []  # lines that stand alone, with their indentation
    for number, line in enumerate(_comment_starts(text, spans)):
        while position < len(anchors) and anchors[position].line <= number:
            _give(found, anchors[position], waiting, first=position == 0)
            waiting = []
            position += 1
        source, start = line
        comment = "" if start is None else source[start:].rstrip()
        if start is None and source.strip():
            continue
        if not source[:start].strip() or not position:
            waiting.append((start or 0, comment))
        else:
            _beside(found.setdefault(anchors[position - 1].key, _Found()), comment)
    last = anchors[-1].key.split(".")[0] if anchors and "." in anchors[-1].key else ""
    _give(found, _Anchor(line=0, key=END, section=last), waiting, first=False)
    return {key: Comment(before=tuple(f.before), beside=f.beside) for key, f in found.items() if f.before or f.beside}


def comment_of(comments: Mapping[str, object], key: str) -> Comment:
    """The comment that belongs to ``key``; an empty one without."""
    found = comments.get(key)
    return found if isinstance(found, Comment) else Comment()


def _beside(found: _Found, comment: str) -> None:
    if found.beside:
        found.before.append(found.beside)
    found.beside = comment


def _give(found: dict[str, _Found], anchor: _Anchor, waiting: list[tuple[int, str]], *, first: bool) -> None:
    """Ties waiting lines to a key; those that are still indented end the section before it."""
    cut = 0
    if anchor.section:
        cut = max((i + 1 for i, (indent, text) in enumerate(waiting) if indent and text), default=0)
        found.setdefault(anchor.section + END, _Found()).before.extend(text for _, text in waiting[:cut])
    key = HEADER if first else anchor.key
    found.setdefault(key, _Found()).before.extend(text for _, text in waiting[cut:])


def _anchors(root: Branch) -> list[_Anchor]:
    """The keys, and the keys of the block mappings under them, in the order of their lines."""
    anchors: list[_Anchor] = []
    section = ""
    for entry in root.entries.values():
        anchors.append(_Anchor(line=entry.place.line - 1, key=entry.key, section=section))
        section = ""
        if isinstance(entry.value, Branch) and not entry.value.flow:
            section = entry.key
            keys = [(inner.place.line - 1, f"{entry.key}.{inner.key}") for inner in entry.value.entries.values()]
            anchors += [_Anchor(line=line, key=key, section="") for line, key in keys]
    return [] if root.flow else anchors


def _comment_starts(text: str, spans: Iterable[Span]) -> Iterator[tuple[str, int | None]]:
    """Each line and where its comment begins (None without one); a blank line inside a scalar is not blank."""
    covered = _covered(spans)
    for number, line in enumerate(text.split("\n")):
        ranges = covered.get(number, [])
        if not line.strip():
            inside = any(start == 0 for start, _ in ranges)
            yield ("x" if inside else "", None)
        else:
            yield (line, _comment_start(line, ranges))


def _comment_start(line: str, ranges: list[tuple[int, int]]) -> int | None:
    start = line.find("#")
    while start >= 0:
        alone = start == 0 or line[start - 1] in " \t"
        if alone and not any(a <= start < b for a, b in ranges):
            return start
        start = line.find("#", start + 1)
    return None


def _covered(spans: Iterable[Span]) -> dict[int, list[tuple[int, int]]]:
    """The columns of each line that belong to scalars."""
    covered: dict[int, list[tuple[int, int]]] = {}
    for first, begin, last, end in spans:
        for line in range(first, last + 1):
            start = begin if line == first else 0
            stop = end if line == last else 2**31
            covered.setdefault(line, []).append((start, stop))
    return covered
