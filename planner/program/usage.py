"""What the choices use of a device's memory, over the step: the rows of the program."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..graph import Sharding, Value
from ..partition.layout import local_shape
from ..solver.arrays import starts
from ..solver.problem import Problem
from .wires import Level, Port, Wiring


@dataclass(frozen=True, slots=True)
class Span:
    """A value that a node lays out, from one point of the step to the one before another."""

    level: int
    value: int
    begin: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What the choices of some nodes use together, and within what. A node may be there more than once."""

    usages: tuple[tuple[int, NDArray[np.int64]], ...]
    limit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Misfit:
    """What a solution that does not fit takes in all, and what each node's values take of it, at its peak."""

    peak_bytes: int
    held_bytes: Mapping[int, int]


class _Piece(NamedTuple):
    """A value as a node lays it out, in some rows."""

    port: Port
    value: Value
    begin: int
    end: int


def with_memory(
    wiring: Wiring, problem: Problem, limit_bytes: int, place: NDArray[np.int64], fast_bytes: int = 0
) -> Problem:
    """The problem with a row for each point of the step: what is live there stays within the limit.

    ``place`` has the problem's node for each of the wiring's. So many ``fast_bytes`` may lie elsewhere, but none of
    what the step is given, nor of what it leaves: these have a row each then, beside what of the given stays.
    """
    spans = list(_spans(wiring))
    points = max((span.end for span in spans), default=0)
    pieces = [*_during(wiring, spans), *(_around(wiring, points) if fast_bytes else ())]
    nodes = [int(place[piece.port.node]) for piece in pieces]
    rows = [(piece.begin, piece.end) for piece in pieces]
    usages = [_usages(piece, wiring.reshards.mesh) for piece in pieces]
    none = np.zeros(0, np.int64)
    return replace(
        problem,
        piece_nodes=np.array(nodes, np.int64),
        piece_rows=np.array(rows, np.int64).reshape(-1, 2),
        usage_start=starts(np.array([len(u) for u in usages], np.int64)),
        usages=np.concatenate([none, *usages]),
        limits=np.array([limit_bytes + fast_bytes] * points + [limit_bytes] * (2 if fast_bytes else 0), np.int64),
    )


def misfit_row(wiring: Wiring, choices: Sequence[int], misfit: Misfit, limit_bytes: int, *, hopeful: bool) -> Row:
    """A row that a solution that does not fit goes beyond by as much as it does beyond the limit.

    Under its other choices a node is taken to hold no more than what it lays out; if ``hopeful``, nothing, but for what
    the step is given and what it leaves. So the row is not known to hold, and proves nothing.
    """
    mesh = wiring.reshards.mesh
    least: dict[int, NDArray[np.int64]] = {}
    for piece in () if hopeful else _during(wiring, _spans(wiring)):
        if piece.port.node in misfit.held_bytes:
            own, known = _usages(piece, mesh), least.get(piece.port.node)
            least[piece.port.node] = own if known is None else np.maximum(known, own)
    usages = [(piece.port.node, _usages(piece, mesh)) for piece in _around(wiring, 0) if piece.end == 2]
    for node, held in misfit.held_bytes.items():
        own = np.minimum(least.get(node, np.zeros(len(wiring.nodes[node].costs), np.int64)), held)
        own[choices[node]] = held
        usages.append((node, own))
    used = sum(int(own[choices[node]]) for node, own in usages)
    return Row(usages=tuple(usages), limit_bytes=limit_bytes - (misfit.peak_bytes - used))


def with_rows(problem: Problem, rows: Sequence[Row], place: NDArray[np.int64]) -> Problem:
    """The problem with these rows too; ``place`` as for ``with_memory``."""
    if not rows:
        return problem
    pieces = [(number, node, own) for number, row in enumerate(rows, len(problem.limits)) for node, own in row.usages]
    ends = problem.usage_start[-1] + np.cumsum([len(own) for _, _, own in pieces])
    return replace(
        problem,
        piece_nodes=np.concatenate([problem.piece_nodes, [int(place[node]) for _, node, _ in pieces]]),
        piece_rows=np.concatenate([problem.piece_rows, [(number, number + 1) for number, _, _ in pieces]]),
        usage_start=np.concatenate([problem.usage_start, ends]),
        usages=np.concatenate([problem.usages, *(own for _, _, own in pieces)]),
        limits=np.concatenate([problem.limits, [row.limit_bytes for row in rows]]),
    )


def _usages(piece: _Piece, mesh: object) -> NDArray[np.int64]:
    return np.array([local_bytes(piece.value, layout, mesh) for layout in piece.port.layouts], np.int64)


def local_bytes(value: Value, layout: Sharding, mesh: object) -> int:
    """What one device holds of a value."""
    return (math.prod(local_shape(value.shape, layout, mesh)) * value.bits + 7) // 8  # type: ignore[arg-type]


def _spans(wiring: Wiring) -> Iterator[Span]:
    """The values of all levels. Points are the kernels in order, those of a loop where it stands."""
    begins: dict[int, tuple[int, int]] = {}
    _number(wiring, wiring.levels[0], 0, begins)
    for level in wiring.levels:
        yield from _level_spans(wiring, level, begins)


def _during(wiring: Wiring, spans: Iterable[Span]) -> Iterator[_Piece]:
    for span in spans:
        level = wiring.levels[span.level]
        port, value = level.source[span.value], level.graph.values[span.value]
        if span.begin < span.end and value.shape:
            yield _Piece(port, value, span.begin, span.end)


def _around(wiring: Wiring, points: int) -> Iterator[_Piece]:
    """What is there when the step begins, in one more row, and when it has ended, in the next."""
    level, ends = wiring.levels[0], wiring.ends
    graph = level.graph
    for position, given in enumerate(graph.arguments):
        stays = position not in graph.aliases.values()
        yield _Piece(level.source[given], graph.values[given], points, points + (2 if stays else 1))
    for left in dict.fromkeys(graph.results):
        port = ends.get(left) or level.source.get(left)
        if port is not None and left not in graph.arguments:
            yield _Piece(port, graph.values[left], points + 1, points + 2)


def _number(wiring: Wiring, level: Level, point: int, spans: dict[int, tuple[int, int]]) -> int:
    """Gives each kernel its points; ``spans`` gets those of levels and, by ``-1 - id``, nothing else."""
    first = point
    for position in range(len(level.program.kernels)):
        if position in level.inner:
            for number in level.inner[position]:
                point = _number(wiring, wiring.levels[number], point, spans)
        else:
            point += 1
    spans[level.number] = (first, max(point, first + 1))
    return max(point, first + 1)


def _level_spans(wiring: Wiring, level: Level, begins: dict[int, tuple[int, int]]) -> Iterator[Span]:
    point, end = begins[level.number]
    made: dict[int, int] = {}
    last: dict[int, int] = {}
    for position, kernel in enumerate(level.program.kernels):
        until = point + 1
        if position in level.inner:
            until = max(begins[number][1] for number in level.inner[position])
        for value in kernel.reads:
            last[value] = until
        for value in () if _is_passing(wiring, level, position) else kernel.writes:
            made[value] = point
            last[value] = until
        point = until
    for value in level.graph.results:
        last[value] = end
    if level.number == 0:
        for value in level.graph.arguments:
            yield Span(0, value, 0, end)
    for value, begin in made.items():
        if value in level.source:
            yield Span(level.number, value, begin, last[value])


def _is_passing(wiring: Wiring, level: Level, position: int) -> bool:
    node = wiring.nodes[level.kernels[position]] if position in level.kernels else None
    return node is not None and (node.in_passing or node.ended is not None)
