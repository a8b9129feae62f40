"""A scheduled program as the buffers that take memory of their own: from when to when, and in whose place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ..chip import Chip
from ..graph import Value
from ..kernels import Program
from .flow import Flow, flow
from .liveness import lifetimes
from .places import takes_over
from .vmem import begins_s, longest_stay_s, residents


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A program, or the body of a loop or a conditional, its kernels in order.

    ``spans`` are the first and the last point of the temporaries that lie in the large memory, ``num_bytes`` their
    bytes, ``heirs`` which of them take over another's place as that one ends. ``outputs`` are the buffers of a whole
    step's results that have memory of their own. ``bodies`` are the bodies by the point at which they run.
    """

    program: Program
    flow: Flow
    spans: Mapping[int, tuple[int, int]]
    num_bytes: Mapping[int, int]
    heirs: Mapping[int, int]
    outputs: frozenset[int] = frozenset()
    bodies: Mapping[int, tuple[Level, ...]] = field(default_factory=dict)


def level(program: Program, chip: Chip | None, sizes: Callable[[Value], int]) -> Level:
    """The buffers of a whole step in its order, on a chip."""
    found = flow(program, sizes, lambda _: 0)
    room = np.full(len(program.kernels), chip.buffer_vmem_bytes if chip else 0, np.int64)
    graph = program.graph
    donated = {found.buffer.get(graph.results[result], -1) for result in graph.aliases}
    return _level(program, found, chip, sizes, room, donated, found.held)


def _level(
    program: Program,
    found: Flow,
    chip: Chip | None,
    sizes: Callable[[Value], int],
    room: np.ndarray,
    elsewhere: set[int],
    outputs: frozenset[int],
) -> Level:
    order = range(len(program.kernels))
    lives = lifetimes(found, order)
    spans = {b: span for b, span in lives.items() if b not in elsewhere and b not in outputs and found.num_bytes[b]}
    if chip is not None and room.size and room.max() > 0:
        staying = residents(spans, found.num_bytes, begins_s(program, chip), room, longest_stay_s(chip))
        spans = {b: span for b, span in spans.items() if b not in staying}
    bodies = {}
    for point, kernel in enumerate(program.kernels):
        if kernel.bodies:
            loop = program.graph.ops[kernel.ops[-1]].kind == "while"
            bodies[point] = tuple(_body(body, loop, chip, sizes, int(room[point])) for body in kernel.bodies)
    heirs = {
        new: old
        for point, pairs in enumerate(found.places)
        for new, old in pairs
        if new in spans and old in spans and spans[old][1] == point
    }
    return Level(
        program=program,
        flow=found,
        spans=spans,
        num_bytes=found.num_bytes,
        heirs=heirs,
        outputs=outputs - elsewhere,
        bodies=bodies,
    )


def _body(body: Program, loop: bool, chip: Chip | None, sizes: Callable[[Value], int], room_bytes: int) -> Level:
    """A body: what it returns lies where its caller has it, but for a carry that is written while still read."""
    found = flow(body, sizes, lambda _: 0)
    graph = body.graph
    homes = {found.buffer.get(v, -1) for v in graph.results}
    if loop:
        for before, after in zip(graph.arguments, graph.results, strict=False):
            held = found.buffer.get(after, -1)
            if held in found.num_bytes and not _written_last(body, found, before, held):
                homes.discard(held)
    return _level(body, found, chip, sizes, np.full(len(body.kernels), room_bytes, np.int64), homes, frozenset())


def _written_last(body: Program, found: Flow, before: int, held: int) -> bool:
    """Whether nothing reads the carry's old value after, or while, its new one is written."""
    point, reads = found.maker[held], found.touches.get(before, ())
    if not reads or reads[-1] < point:
        return True
    return reads[-1] == point and takes_over(body.graph, body.kernels[point], before, held, found.buffer)
