"""Bytes live at every point of a program, by kind, and the tensors that are live at one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..kernels import Kernel, Program
from .kinds import COLLECTIVES, PADDING, TRANSIENTS, temporary_kinds
from .level import Level


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A kernel of a program, loops entered once, and the bytes of temporaries that are live while it runs, by kind.

    ``path`` are the positions of the kernel and of the loops around it, from outside. What lies in a chip's fast
    memory is not counted, nor are the arguments, the results and the program itself, which are there at every point.
    """

    program: Program
    kernel: Kernel
    path: tuple[int, ...]
    bytes_by_kind: Mapping[str, int]

    @property
    def num_bytes(self) -> int:
        """Bytes of all kinds."""
        return sum(self.bytes_by_kind.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveTensor:
    """A tensor that a device holds: its name (an argument's path, or the name stack that made it) and its kind.

    ``num_bytes`` is with the padding of its tiles, ``padding_bytes`` of which are that. ``source`` is that of the
    operation that makes it, None of an argument and of a copy of one.
    """

    name: str
    kind: str
    num_bytes: int
    padding_bytes: int
    shape: tuple[int, ...]
    dtype: str
    source: str | None = None


def points(level: Level, weights: frozenset[tuple[int, ...]]) -> list[Point]:
    """Every point of a step in order."""
    return list(_points(level, weights, (), {}))


def _points(
    level: Level, weights: frozenset[tuple[int, ...]], path: tuple[int, ...], around: Mapping[str, int]
) -> Iterator[Point]:
    kinds = temporary_kinds(level.program, weights)
    change = _changes(level, kinds)
    live = dict(around)
    for position, kernel in enumerate(level.program.kernels):
        for kind, num_bytes in change[position].items():
            live[kind] = live.get(kind, 0) + num_bytes
        here = {kind: num_bytes for kind, num_bytes in live.items() if num_bytes}
        yield Point(program=level.program, kernel=kernel, path=(*path, position), bytes_by_kind=here)
        for body in level.bodies.get(position, ()):
            yield from _points(body, weights, (*path, position), here)


def _changes(level: Level, kinds: Mapping[int, str]) -> list[dict[str, int]]:
    """What each point has more or less than the one before it, by kind; what is taken over counts for the heir."""
    change: list[dict[str, int]] = [{} for _ in range(len(level.program.kernels) + 1)]
    inherited = set(level.heirs.values())
    for buffer, (first, last) in level.spans.items():
        end = last if buffer in inherited else last + 1
        padding = max(0, level.num_bytes[buffer] - level.value(buffer).num_bytes)
        kind = _kind(level, buffer, kinds)
        for what, num_bytes in ((kind, level.num_bytes[buffer] - padding), (PADDING, padding)):
            change[first][what] = change[first].get(what, 0) + num_bytes
            change[end][what] = change[end].get(what, 0) - num_bytes
    return change


def live_tensors(level: Level, path: tuple[int, ...], weights: frozenset[tuple[int, ...]]) -> list[LiveTensor]:
    """The temporaries that are live at a point, those around its loop too."""
    kinds = temporary_kinds(level.program, weights)
    graph, inherited, point = level.program.graph, set(level.heirs.values()), path[0]
    scopes = {v: op.origin.scope or op.kind for op in graph.ops for v in op.results}
    sources = {v: op.origin.source for op in graph.ops for v in op.results}
    names = dict[int | None, str](zip(graph.arguments, graph.names, strict=False))
    found = []
    for buffer, (first, last) in level.spans.items():
        if first <= point <= (last - 1 if buffer in inherited else last):
            value = level.value(buffer)
            num_bytes = level.num_bytes[buffer]
            found.append(
                LiveTensor(
                    name=scopes.get(buffer) or _copy_name(level, buffer, names),
                    kind=_kind(level, buffer, kinds),
                    num_bytes=num_bytes,
                    padding_bytes=max(0, num_bytes - value.num_bytes),
                    shape=value.shape,
                    dtype=value.dtype,
                    source=sources.get(buffer),
                )
            )
    if len(path) > 1:
        for body in level.bodies[point]:
            if path[1] < len(body.program.kernels):
                found += live_tensors(body, path[1:], weights)
    return found


def _kind(level: Level, buffer: int, kinds: Mapping[int, str]) -> str:
    return COLLECTIVES if buffer in level.incoming else kinds.get(buffer, TRANSIENTS)


def _copy_name(level: Level, buffer: int, names: Mapping[int | None, str]) -> str:
    if buffer in level.incoming:
        return "what a sum over devices receives"
    if buffer in level.indices:
        return "where a device's part begins"
    if buffer in level.relaid:
        return f"copy of {names.get(level.relaid[buffer], 'a result')} in another layout"
    if buffer < -2 * len(level.program.graph.values):
        return "what a loop takes of an image, or puts into it"
    return f"narrow copy of {names.get(level.copies.get(buffer), 'a weight')}"
