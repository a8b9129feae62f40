"""Covers paths by few patterns, the first match deciding: each path gets a label that it accepts.

A greedy search. Everything under one argument may have a default, a last pattern ``params/**``; before it stand
patterns that match nothing which would take harm, the one that covers most first; then pairs are put together
(``w[io]``).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from heapq import heapify, heappop, heappush
from itertools import combinations, product

from ...dsl.records import record
from .index import Index
from .pattern_texts import DEEP, Segments, is_wild, merged, text_of

ANCHORS = {"ops": 2}
"""How many segments a pattern keeps to the letter, by the first; one elsewhere."""

_MOST_DEFAULTS = 6

Labels = Sequence[Hashable]


@record(frozen=True, slots=True, kw_only=True)
class Covering:
    """One line of a cover: its pattern, what it gives, and the paths that it decides."""

    pattern: str
    label: Hashable
    paths: tuple[str, ...]


@record(frozen=True, slots=True, kw_only=True)
class Piece:
    """One pattern of a cover, what it gives to the paths that it decides, and all that it matches."""

    segments: Segments
    label: Hashable
    mask: int = field(repr=False)

    @property
    def text(self) -> str:
        """The pattern."""
        return text_of(self.segments)


def cover(
    wanted: Mapping[str, Labels],
    *,
    optional: Mapping[str, Labels] | None = None,
    others: Collection[str] = (),
    apart: Collection[str] = (),
) -> list[Covering]:
    """Patterns with their labels, in order: the first that matches a path gives it one of the labels it accepts.

    Every path of ``wanted`` is matched, those of ``optional`` may be, those of ``others`` are not. Each pattern decides
    a path of ``wanted``. Patterns that begin with one of the words ``apart`` begin with no other. Labels are given in
    the order in which they are preferred. The same cover for the same input.
    """
    accepted = {**{path: list(labels) for path, labels in (optional or {}).items()}, **wanted}
    paths = [*accepted, *(path for path in others if path not in accepted)]
    ground = _Ground(paths, accepted, {number for number, path in enumerate(paths) if path in wanted}, apart)
    pieces = [piece for group in ground.groups() for piece in _covered(ground, group)]
    return list(_lines(paths, _merged(ground, list(_busy(ground, pieces)))))


def _lines(paths: Sequence[str], pieces: Sequence[Piece]) -> Iterator[Covering]:
    taken = 0
    for piece in pieces:
        decided = piece.mask & ~taken
        taken |= piece.mask
        held = tuple(path for number, path in enumerate(paths) if decided >> number & 1)
        yield Covering(pattern=piece.text, label=piece.label, paths=held)


class _Ground:
    """The paths as bits: what is needed, what accepts a label, what patterns there are to choose from."""

    def __init__(
        self, paths: Sequence[str], accepted: Mapping[str, Labels], wanted: Collection[int], apart: Collection[str]
    ):
        self.apart = {"ops", *apart}  # computed values are known by how their patterns begin
        self.index = Index(paths)
        self.need = sum(1 << number for number in wanted)
        self.accepts: dict[Hashable, int] = {}
        for number, path in enumerate(paths):
            for label in accepted.get(path, ()):
                self.accepts[label] = self.accepts.get(label, 0) | 1 << number
        self.wanted = sorted(wanted)

    def groups(self) -> Iterator[int]:
        """The needed paths by what their patterns keep to the letter: an argument's, a function's."""
        found: dict[tuple[str, ...], int] = {}
        for number in self.wanted:
            segments = self.index.segments[number]
            key = segments[: self.anchor(number)]
            found[key] = found.get(key, 0) | 1 << number
        yield from found.values()

    def anchor(self, number: int) -> int:
        """How many segments of a path its patterns keep."""
        segments = self.index.segments[number]
        return min(ANCHORS.get(segments[0], 1), len(segments))

    def candidates(self, group: int) -> list[tuple[str, Segments, int]]:
        """The patterns for the paths of a group with what each matches; the plainest first."""
        found: dict[Segments, int] = {}
        for number in self.wanted:
            if group >> number & 1:
                for segments in self.index.candidates(number, self.anchor(number)):
                    if segments not in found:
                        found[segments] = self.index.matching(segments)
        listed = [(text_of(segments), segments, mask) for segments, mask in found.items()]
        return sorted(_distinct(listed), key=_plainness)

    def defaults(self, group: int) -> list[Piece]:
        """Everything below the group's common beginning, with each label; what most paths accept first."""
        number = (group & -group).bit_length() - 1
        segments = tuple((s,) for s in self.index.segments[number][: self.anchor(number)])
        deep = (*segments, DEEP)
        mask = self.index.matching(deep)
        labels = [label for label, accepting in self.accepts.items() if accepting & group]
        ranked = sorted(labels, key=lambda label: -(self.accepts[label] & group).bit_count())
        return [Piece(segments=deep, label=label, mask=mask) for label in ranked[:_MOST_DEFAULTS]]

    def holds(self, pieces: Sequence[Piece], group: int) -> bool:
        """Whether the pieces in this order cover the group, do no harm, and each decides a needed path."""
        open_ = ~0
        for piece in pieces:
            decided = piece.mask & open_
            if decided & ~self.accepts[piece.label] & self.all or not decided & self.need:
                return False
            open_ &= ~piece.mask
        return not group & open_

    def means_most(self, segments: Segments) -> bool:
        """Whether most of the ways to read a pattern, one word a segment, are needed: else two are easier to read."""
        ways = [tuple((word,) for word in words) for words in product(*segments)]
        return 2 * sum(bool(self.index.matching(way) & self.need) for way in ways) > len(ways)

    @property
    def all(self) -> int:
        """Every path."""
        return (1 << len(self.index.segments)) - 1


def _distinct(listed: list[tuple[str, Segments, int]]) -> Iterator[tuple[str, Segments, int]]:
    """Of the patterns that match the same, the shortest three."""
    by_mask: dict[int, list[tuple[str, Segments, int]]] = {}
    for item in listed:
        by_mask.setdefault(item[2], []).append(item)
    for items in by_mask.values():
        yield from sorted(items, key=_plainness)[:3]


def _plainness(item: tuple[str, Segments, int]) -> tuple[bool, int, str]:
    """A path as it is before patterns, then the shorter."""
    text, segments, _ = item
    return any(is_wild(words) for words in segments), len(text), text


def _covered(ground: _Ground, group: int) -> list[Piece]:
    """The fewest pieces found for one group, over its possible defaults."""
    candidates = ground.candidates(group)
    found = []
    for default in [None, *(ground.defaults(group) if group.bit_count() > 1 else ())]:
        rest = group & ~ground.accepts[default.label] if default else group
        pieces = _in_order(ground, _merged(ground, _exceptions(ground, candidates, rest)), rest)
        pieces = [*pieces, default] if default else pieces
        if ground.holds(pieces, group):
            found.append(pieces)
    return min(found, key=_effort)


def _in_order(ground: _Ground, pieces: list[Piece], rest: int) -> list[Piece]:
    """The pieces in the order of the paths that they match, where that does no harm."""
    ordered = sorted(pieces, key=lambda piece: (piece.mask & rest) & -(piece.mask & rest))
    return ordered if ground.holds(ordered, rest) else pieces


def _busy(ground: _Ground, pieces: Sequence[Piece]) -> Iterator[Piece]:
    """The pieces that decide a needed path: patterns of one group may match paths of another."""
    open_ = ground.need
    for piece in pieces:
        if piece.mask & open_:
            yield piece
        open_ &= ~piece.mask


def _effort(pieces: Sequence[Piece]) -> tuple[int, int]:
    return len(pieces), sum(len(piece.text) for piece in pieces)


def _exceptions(ground: _Ground, candidates: Sequence[tuple[str, Segments, int]], rest: int) -> list[Piece]:
    """Pieces for the paths in ``rest``, each harmless after those before it; the one that covers most first.

    What a candidate covers only shrinks, so those that covered less than the best when last looked at can wait.
    """
    chosen: list[Piece] = []
    taken = 0
    labels = {number: _labels(ground, mask & rest) for number, (_, _, mask) in enumerate(candidates) if mask & rest}
    most = [(-(candidates[number][2] & rest).bit_count(), number) for number in labels]  # covered when last looked at
    heapify(most)
    while rest:
        best: tuple[int, bool, int] = (0, False, 0)
        piece: Piece | None = None
        looked_at: list[tuple[int, int]] = []
        while most and -most[0][0] >= max(best[0], 1):
            _, number = heappop(most)
            _, segments, mask = candidates[number]
            count = (mask & rest).bit_count()
            if not count:
                continue
            looked_at.append((-count, number))
            for label, accepting in labels[number] if count >= best[0] else ():
                worth = (mask & rest & accepting).bit_count(), not mask & ~accepting, -number
                if worth[0] and worth > best and not mask & ~taken & ~accepting:
                    best, piece = worth, Piece(segments=segments, label=label, mask=mask)
        if piece is None:
            break
        for one in looked_at:
            heappush(most, one)
        chosen.append(piece)
        rest &= ~piece.mask
        taken |= piece.mask
    return chosen


def _labels(ground: _Ground, mask: int) -> list[tuple[Hashable, int]]:
    """The labels that some of these paths accept, with all that accept them."""
    return [(label, accepting) for label, accepting in ground.accepts.items() if accepting & mask]


def _merged(ground: _Ground, pieces: list[Piece]) -> list[Piece]:
    """The pieces with pairs of them put together, as long as that does no harm: first those that differ least."""
    covered = ground.need & _union(pieces)
    current = pieces
    for differing in (1, 2):
        while True:
            found = next((p for p in _mergers(ground, current, differing) if ground.holds(p, covered)), None)
            if found is None:
                break
            current = found
    return current


def _union(pieces: Sequence[Piece]) -> int:
    total = 0
    for piece in pieces:
        total |= piece.mask
    return total


def _mergers(ground: _Ground, pieces: Sequence[Piece], differing: int) -> Iterator[list[Piece]]:
    """The lists of pieces with two of one label put together, in the place of either."""
    for i, j in _pairs(pieces, differing):
        one, other = pieces[i], pieces[j]
        both = merged(one.segments, other.segments)
        if both is None or (len(both[0]) > 1 and ground.apart & set(both[0])) or not ground.means_most(both):
            continue
        piece = Piece(segments=both, label=one.label, mask=ground.index.matching(both))
        yield [*pieces[:i], *pieces[i + 1 : j], piece, *pieces[j + 1 :]]
        yield [*pieces[:i], piece, *pieces[i + 1 : j], *pieces[j + 1 :]]


def _pairs(pieces: Sequence[Piece], differing: int) -> Iterator[tuple[int, int]]:
    """The pieces of one label that differ in no more segments than these, by their numbers, in order."""
    alike: dict[Hashable, list[int]] = {}
    others: list[list[list[int]]] = []
    for number, piece in enumerate(pieces):
        places = range(len(piece.segments))
        rests = [
            (piece.label, *(() if i in open_ else words for i, words in enumerate(piece.segments)))
            for open_ in combinations(places, min(differing, len(places)))
        ]
        others.append([alike.setdefault(rest, []) for rest in rests])
        for numbers in others[-1]:
            numbers.append(number)
    for i, several in enumerate(others):
        for j in sorted({j for numbers in several for j in numbers if j > i}):
            yield i, j
