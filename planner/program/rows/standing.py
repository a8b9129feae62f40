"""The rows of memory as a step's kernels stand: what is there at each point, by which solutions are looked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...chip import Chip
from ...fusion.narrow import NARROW, WIDE
from ...graph import Value
from ...memory.tight import is_tight
from ...solver.arrays import starts
from ...solver.problem import Problem
from ..wiring.wires import Port, Wiring
from .lives import Brought, brought, part_bytes, points, spans
from .needs import Need
from .usage import always_there, least_bytes, ranges_but

Bytes = NDArray[np.int64]
Piece = tuple[int, Bytes, int, int]
"""A node, what it uses by its choice, and the rows in which it does."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows: of what is there all the time, then of each point, behind which those of its products are."""

    first: Sequence[int]
    products: Mapping[int, Need]

    @classmethod
    def of(cls, last: int, products: Sequence[tuple[int, Need]]) -> _Rows:
        """Those of the points before the last; ``products`` are in their order."""
        there = [(point, need) for point, need in products if point < last]
        before = np.searchsorted([point for point, _ in there], np.arange(last + 1))
        first = [1 + point + int(count) for point, count in enumerate(before)]
        return cls(first, {2 + point + number: need for number, (point, need) in enumerate(there)})

    @property
    def end(self) -> int:
        """How many they are."""
        return self.first[-1]

    def at(self, point: int) -> int:
        """The row of a point, or the end."""
        return self.first[min(point, len(self.first) - 1)]

    def reading(self, value: int) -> set[int]:
        """Those of products that read a value of the step itself."""
        return {row for row, need in self.products.items() if need.at and not need.at[0] and value in need.read}


def with_memory(
    wiring: Wiring,
    problem: Problem,
    limit_bytes: int,
    place: NDArray[np.int64],
    chip: Chip,
    needed: Sequence[Need],
    doubt: float = 1.0,
) -> Problem:
    """The problem with rows of memory, which no solution goes beyond that fits: what a device takes at least.

    One row has what is there all the time, what the step is given, what it leaves and the program itself; then each
    point of the step has one with its temporaries too, but for those that fast memory may hold, and one more for each
    product there that something is ``needed`` for: what it reads in another layout, and adds up over devices. Of these
    the program may count up to ``doubt`` times as many as there are: the step laid out may have other kernels in
    another order. ``place`` has the problem's node for each of the wiring's.
    """
    lent = is_tight(limit_bytes, chip.hbm_bytes)  # then temporaries may lie where results will
    level, copies, pieces = wiring.levels[0], list(brought(wiring)), list[Piece]()
    live = list(_held(wiring, copies, with_results=lent))
    rows = _Rows.of(max((end for *_, end in live), default=0), _by_point(wiring, needed))
    limits = np.full(rows.end, limit_bytes - least_bytes(wiring, chip), np.int64)
    limits[1:] += chip.buffer_vmem_most_bytes
    for port, value, begin, end in live:
        used = (part_bytes(wiring, port, value) / doubt).astype(np.int64)
        pieces.append((port.node, used, rows.at(begin), rows.at(end)))
    for position, (port, number) in enumerate(always_there(wiring)):
        used = part_bytes(wiring, port, level.values[number])
        if position >= len(level.graph.arguments):
            pieces.append((port.node, used, 0, 1 if lent else rows.end))
            continue
        least = int(used.min())
        own = list(
            _copied(wiring, rows, [each for each in copies if not each.level and each.value == number], least, doubt)
        )
        apart = {row for row, need in rows.products.items() if number in need.least}
        apart.update(row for *_, begin, end in own for row in range(begin, end))
        limits[list(apart)] -= least
        pieces += [*own, *((port.node, used, *each) for each in ranges_but(sorted(apart), rows.end))]
    for row, need in rows.products.items():
        if need.node is not None and need.passing is not None:
            pieces.append((need.node, need.passing, row, row + 1))
    return replace(
        problem,
        piece_nodes=np.array([int(place[node]) for node, *_ in pieces], np.int64),
        piece_rows=np.array([(begin, end) for *_, begin, end in pieces], np.int64).reshape(-1, 2),
        usage_start=starts(np.array([len(used) for _, used, *_ in pieces], np.int64)),
        usages=np.concatenate([np.zeros(0, np.int64), *(used for _, used, *_ in pieces)]),
        limits=limits,
    )


def _copied(wiring: Wiring, rows: _Rows, copies: Sequence[Brought], least: int, doubt: float) -> Iterator[Piece]:
    """What an argument takes more than its least where it is brought for several, but in the rows of products that read
    it, which say so themselves.
    """
    for copy in copies:
        known = wiring.levels[copy.level].graph.values[copy.value]
        held = part_bytes(wiring, copy.port, _rounded(known, copy))
        more = (np.clip(held - least, 0, None) / doubt).astype(np.int64)
        alone = set(range(rows.at(copy.begin), rows.at(copy.end))) - rows.reading(copy.value)
        for begin, end in _runs(sorted(alone)):
            yield copy.port.node, more, begin, end


def _held(wiring: Wiring, copies: Sequence[Brought], *, with_results: bool) -> Iterator[tuple[Port, Value, int, int]]:
    """The temporaries as they lie where they are made, until the first point that reads them, then as all read them."""
    known = {(copy.level, copy.value): copy for copy in copies if copy.is_all}
    for span in spans(wiring, with_results=with_results):
        level = wiring.levels[span.level]
        made, value = level.source[span.value], level.graph.values[span.value]
        copy = known.get((span.level, span.value))
        begin = span.end if copy is None else min(max(copy.begin, span.begin), span.end)
        if span.begin < begin:
            yield made, value, span.begin, begin
        if copy is not None and begin < span.end:
            yield copy.port, _rounded(value, copy), begin, span.end


def _rounded(value: Value, copy: Brought) -> Value:
    """A value as it is brought there."""
    return replace(value, dtype=NARROW) if copy.narrow and value.dtype == WIDE else value


def _by_point(wiring: Wiring, needed: Sequence[Need]) -> list[tuple[int, Need]]:
    """What is needed for products that use something in passing, in the order of their points."""
    begins = points(wiring) if needed else {}
    found = [
        (begins[need.at], need)
        for need in needed
        if need.at is not None and need.passing is not None and need.passing.any()
    ]
    return sorted(found, key=lambda each: each[0])


def _runs(rows: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Rows in order as ranges."""
    first = 0
    for number, row in enumerate(rows):
        if number + 1 == len(rows) or rows[number + 1] != row + 1:
            yield rows[first], row + 1
            first = number + 1
