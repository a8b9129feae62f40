"""The notation: one word a dim, ``@axis`` where it is split, ``...`` for dims left alone (``E@expert C M@model``).

``_`` is a dim without a name: it may stand several times, and its size has to agree with no other (``_@data _``). The
notation is the papers' underlined letter. The single words ``replicate``, ``auto``, ``infer`` and ``like PATH`` stand
in its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from .errors import Flaw, FlawError, PlanError, flaw, shorten
from .plan import Auto, Dim, Dims, Infer, Like, Place, Replicate, Rest

Name = TypeVar("Name", str, int)

NAME = r"[A-Za-z_][A-Za-z0-9_]*"
NAMELESS = "_"
"""The word of a dim that has no name."""

WORDS = ("replicate", "auto", "infer", "like")
_DIM = rf"{NAME}(?:@{NAME}(?:\+{NAME})*(?:!pad)?)?"
NOTATION = rf"^[ \t]*(?:like[ \t]+[^ \t]+|(?:{_DIM}|\.\.\.)(?:[ \t]+(?:{_DIM}|\.\.\.))*)[ \t]*$"
"""The notation as a regular expression, for the JSON schema; ``parse`` knows more."""

_WORD = re.compile(r"[^ \t]+")
_NAMED = re.compile(NAME)
_PATTERN_CHARACTERS = re.compile(r"[*?\[\]{}]")
_SIMPLE: dict[str, type[Replicate] | type[Auto] | type[Infer]] = {
    "replicate": Replicate,
    "auto": Auto,
    "infer": Infer,
}

Word = tuple[str, int]  # a word and how many characters into the text it begins
Written = Replicate | Auto | Infer | Dims | Like


def parse(text: str, place: Place | None = None) -> Written:
    """The assignment that ``text`` writes; ``place`` is where the text begins. Raises ``PlanError`` with every flaw."""
    try:
        return scan(text)
    except FlawError as error:
        raise PlanError(f.at(place) for f in error.flaws) from None


def scan(text: str) -> Written:
    """The assignment that ``text`` writes. Raises ``FlawError`` with every flaw and its offset."""
    words = [(match.group(), match.start()) for match in _WORD.finditer(text)]
    if not words:
        raise flaw("MW040")
    first = words[0][0]
    if first == "like":
        return _like(words)
    if first in _SIMPLE and len(words) == 1:
        return _SIMPLE[first]()
    dims, flaws = _dims(words)
    flaws += [Flaw(code="MW041", offset=at, numbers={"word": word}) for word, at in words if word in WORDS]
    if flaws:
        raise FlawError(*sorted(flaws, key=lambda f: f.offset))
    return Dims(dims=tuple(dims))


def write(assignment: Written) -> str:
    """The text of an assignment that has one; ``scan`` reads it back equal."""
    if isinstance(assignment, Dims):
        return " ".join(map(_written, assignment.dims))
    if isinstance(assignment, Like):
        return f"like {assignment.target}"
    return next(word for word, kind in _SIMPLE.items() if isinstance(assignment, kind))


def check_name(word: str, offset: int = 0) -> str:
    """``word``, if it can name an axis or a dim. Raises ``FlawError``."""
    flaws = list(_name_flaws(word, offset))
    if flaws:
        raise FlawError(*flaws)
    return word


def repeats(names: Iterable[Name]) -> Iterator[tuple[int, Name]]:
    """Position and name of each name that stands earlier in ``names`` too."""
    seen: set[Name] = set()
    for i, name in enumerate(names):
        if name in seen:
            yield i, name
        seen.add(name)


def _like(words: Sequence[Word]) -> Like:
    if len(words) != 2:
        raise flaw("MW042", words[2][1] if len(words) > 2 else 0, count=len(words) - 1)
    target, offset = words[1]
    wild = _PATTERN_CHARACTERS.search(target)
    if wild:
        raise flaw("MW043", offset + wild.start(), target=shorten(target), character=wild.group())
    if "" in target.split("/"):
        raise flaw("MW043", offset, target=shorten(target), character="an empty segment")
    return Like(target=target)


def _dims(words: Sequence[Word]) -> tuple[list[Dim | Rest], list[Flaw]]:
    """The dims, and the flaws of each word and of the words together."""
    dims: list[Dim | Rest] = []
    flaws: list[Flaw] = []
    seen_dims: set[str] = set()
    seen_axes: set[str] = set()
    rests = 0
    for word, offset in words:
        if word == "...":
            rests += 1
            dims.append(Rest())
            if rests > 1:
                flaws.append(Flaw(code="MW044", offset=offset))
            continue
        name, axes, pad, found = _dim(word, offset)
        flaws += found
        flaws += _repeated("MW045", [(name, offset)] if name != NAMELESS else [], seen_dims)
        flaws += _repeated("MW046", axes, seen_axes)
        dims.append(Dim(name=name, axes=tuple(axis for axis, _ in axes), pad=pad))
    return dims, flaws


def _repeated(code: str, words: Sequence[Word], seen: set[str]) -> list[Flaw]:
    flaws = []
    for word, offset in words:
        if word and word in seen:
            flaws.append(Flaw(code=code, offset=offset, numbers={"name": shorten(word)}))
        seen.add(word)
    return flaws


def _dim(word: str, offset: int) -> tuple[str, list[Word], bool, list[Flaw]]:
    """A word's dim name, its axes with their offsets, whether it says ``!pad``, and its flaws."""
    head, bang, mark = word.partition("!")
    name, at, rest = head.partition("@")
    axes = list(_split(rest, offset + len(name) + 1)) if at else []
    flaws = list(_name_flaws(name, offset))
    for axis, place in axes:
        flaws += _name_flaws(axis, place)
    if bang and mark != "pad":
        flaws.append(Flaw(code="MW047", offset=offset + len(head), numbers={"mark": shorten(mark)}))
    if bang and name and not at:
        flaws.append(Flaw(code="MW048", offset=offset + len(head), numbers={"name": shorten(name)}))
    return name, axes, bool(bang), flaws


def _split(axes: str, offset: int) -> Iterator[Word]:
    for axis in axes.split("+"):
        yield axis, offset
        offset += len(axis) + 1


def _name_flaws(word: str, offset: int) -> Iterator[Flaw]:
    """Why ``word`` is no name: it is empty, or one character is wrong."""
    if not word:
        yield Flaw(code="MW049", offset=offset)
    elif not _NAMED.fullmatch(word):
        legal = _NAMED.match(word)
        end = legal.end() if legal else 0
        numbers = {"word": shorten(word), "character": word[end]}
        yield Flaw(code="MW050", offset=offset + end, numbers=numbers)


def _written(dim: Dim | Rest) -> str:
    if isinstance(dim, Rest):
        return "..."
    axes = "@" + "+".join(dim.axes) if dim.axes else ""
    return f"{dim.name}{axes}{'!pad' if dim.pad else ''}"
