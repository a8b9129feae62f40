"""Packing: many short (source, target) pairs to a row, told apart by segment numbers, as TPUs like their batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

PAD_ID = 0
OPEN_ROWS = 16
Tokens = Sequence[int]
TokenPair = tuple[Tokens, Tokens]
Batch = dict[str, NDArray[np.int32]]


@dataclass(slots=True, kw_only=True)
class PackingStats:
    """What packing has done so far: counts of pairs, of tokens, and of places in rows (padding included)."""

    pairs: int = 0
    too_long_pairs: int = 0
    source_tokens: int = 0
    target_tokens: int = 0
    batches: int = 0
    source_places: int = 0
    target_places: int = 0

    @property
    def source_efficiency(self) -> float:
        """The share of source places that hold a token."""
        return self.source_tokens / self.source_places if self.source_places else 0.0

    @property
    def target_efficiency(self) -> float:
        """The share of target places that hold a token."""
        return self.target_tokens / self.target_places if self.target_places else 0.0

    def as_json(self) -> Mapping[str, int | float]:
        """The counts that a run reports."""
        return {
            "pairs": self.pairs,
            "too_long_pairs": self.too_long_pairs,
            "source_efficiency": self.source_efficiency,
            "target_efficiency": self.target_efficiency,
        }


@dataclass(slots=True, kw_only=True)
class _Row:
    """One row being filled: pairs whole and in order, neither side longer than ``length`` in sum."""

    length: int
    pairs: list[TokenPair] = field(default_factory=list)
    source_room: int = field(init=False)
    target_room: int = field(init=False)

    def __post_init__(self) -> None:
        self.source_room = self.target_room = self.length

    def fits(self, pair: TokenPair) -> bool:
        return len(pair[0]) <= self.source_room and len(pair[1]) <= self.target_room

    def add(self, pair: TokenPair) -> None:
        self.pairs.append(pair)
        self.source_room -= len(pair[0])
        self.target_room -= len(pair[1])


def pack(pairs: Iterable[TokenPair], *, batch: int, length: int, stats: PackingStats) -> Iterator[Batch]:
    """Batches of ``batch`` rows of ``length`` places, in which every pair stands whole.

    ``OPEN_ROWS`` rows are filled at a time: a pair goes to the first of them that has room, and where none has, the
    fullest is closed and a new one opened. A pair with a side longer than ``length`` is left out and counted in
    ``stats.too_long_pairs``. The last batch of a finite input is filled up with padding.

    A batch has six int32 arrays [batch, length]: ``source``, ``source_segments`` (1, 2, ... in a row; 0 is padding),
    ``source_positions`` (from 0 in each segment), and the same three for ``target``.
    """
    rows = _fill_rows(pairs, length, stats)
    while group := list(islice(rows, batch)):
        missing = (_Row(length=length) for _ in range(batch - len(group)))
        yield _emit([*group, *missing], length, stats)


def _fill_rows(pairs: Iterable[TokenPair], length: int, stats: PackingStats) -> Iterator[_Row]:
    rows: list[_Row] = []
    for pair in pairs:
        if max(len(pair[0]), len(pair[1])) > length:
            stats.too_long_pairs += 1
            continue
        row = next((row for row in rows if row.fits(pair)), None)
        if row is None:
            if len(rows) == OPEN_ROWS:
                yield rows.pop(_fullest(rows))
            rows.append(row := _Row(length=length))
        row.add(pair)
    yield from rows


def _fullest(rows: Sequence[_Row]) -> int:
    return min(range(len(rows)), key=lambda at: rows[at].source_room + rows[at].target_room)


def _emit(rows: Sequence[_Row], length: int, stats: PackingStats) -> Batch:
    batch: Batch = {}
    for side, name in enumerate(("source", "target")):
        batch |= _arrays(name, [[pair[side] for pair in row.pairs] for row in rows], length)
    stats.batches += 1
    stats.pairs += sum(len(row.pairs) for row in rows)
    stats.source_tokens += int(np.count_nonzero(batch["source_segments"]))
    stats.target_tokens += int(np.count_nonzero(batch["target_segments"]))
    stats.source_places += batch["source"].size
    stats.target_places += batch["target"].size
    return batch


def _arrays(name: str, rows: Sequence[Sequence[Tokens]], length: int) -> Batch:
    tokens, segments, positions = (np.full((len(rows), length), PAD_ID, dtype=np.int32) for _ in range(3))
    for at, texts in enumerate(rows):
        start = 0
        for segment, text in enumerate(texts, start=1):
            end = start + len(text)
            tokens[at, start:end] = text
            segments[at, start:end] = segment
            positions[at, start:end] = np.arange(len(text))
            start = end
    return {name: tokens, f"{name}_segments": segments, f"{name}_positions": positions}
