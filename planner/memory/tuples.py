"""The tuples of a program: each operation of several results has one in the large memory, that says where these lie.

Such are kernels, loops, and all that is begun and awaited apart: permutes, and the copies into and out of fast memory.
What is fetched in pieces has two for each. They are there for all of a program's time.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..chip import Chip
from ..kinds import COLLECTIVE_PERMUTE
from .fast.accessed import is_scan
from .level import Level
from .tensors.tiles import padded_bytes

TUPLE_BYTES = 16 << 10
"""What the heap gives at least."""

OF_A_PIECE = 2


def tuple_bytes(level: Level, chip: Chip | None) -> int:
    """Bytes of all tuples of a step, its loops' bodies with it; v2 and v3 have none of them in the heap."""
    if chip is None or chip.platform != "tpu":
        return TUPLE_BYTES * _several(level)
    if not chip.buffer_vmem_bytes:
        return 0
    return TUPLE_BYTES * (sum(_tuples(level, chip)) + _results_brought_back(level))


def _several(level: Level) -> int:
    here = sum(len(kernel.writes) > 1 for kernel in level.program.kernels)
    return here + sum(_several(body) for bodies in level.bodies.values() for body in bodies)


def _tuples(level: Level, chip: Chip, *, scanned: bool = False) -> Iterator[int]:
    """How many tuples each operation has, and each array that is copied into fast memory or out of it.

    v5e makes permutes at once, of more than 16 devices at least.
    """
    ops, apart = level.program.graph.ops, not chip.gathers_beside_products
    for kernel in level.program.kernels:
        yield int(len(kernel.writes) > 1 or bool(kernel.bodies))
        yield int(apart and any(ops[number].kind == COLLECTIVE_PERMUTE for number in kernel.ops))
    for point, bodies in level.bodies.items():
        for body in bodies:
            yield from _tuples(body, chip, scanned=_is_scan(level, point))
    yield sum(_copied(level, chip, scanned=scanned))


def _is_scan(level: Level, point: int) -> bool:
    op = level.program.graph.ops[level.program.kernels[point].ops[-1]]
    return all(is_scan(op, body.program.graph) for body in level.bodies[point])


def _results_brought_back(level: Level) -> int:
    """The results of a step that there is room for in fast memory as they are made: they are copied from there."""
    values, maker = level.program.graph.values, level.flow.maker
    made = {value: maker[value] for value in level.program.graph.results if value in maker}
    return sum(padded_bytes(values[value]) <= int(level.room_bytes[point]) for value, point in made.items())


def _copied(level: Level, chip: Chip, *, scanned: bool) -> Iterator[int]:
    """The tuples of the copies of each array: fetched where it does not begin to lie near as it is made, and brought
    back where it does not lie there to its end. What scans are given there, and hand on, nobody copies; what they begin
    with that is filled with a number is made where it is read.
    """
    values, maker, kernels = level.program.graph.values, level.flow.maker, level.program.kernels
    made = level.flow.maker.keys() | {*level.program.graph.arguments}
    scans = {point for point in level.bodies if _is_scan(level, point)}
    for buffer, stays in level.near.items():
        if scanned and stays == ((0, len(kernels) - 1, True),):
            continue
        held = values[buffer]
        num_bytes = level.flow.num_bytes.get(buffer) or padded_bytes(held)
        pieces = chip.fetched_in.pieces(held.shape, num_bytes) if chip.fetched_in else 1
        begin = maker.get(buffer, -1)
        is_filled = stays[0].first in scans and begin >= 0 and made.isdisjoint(kernels[begin].reads)
        fetched = len(stays) - (stays[0].first == begin or is_filled)
        yield fetched * (OF_A_PIECE * pieces if pieces > 1 else 1)
        yield sum(not stay.is_last for stay in stays)
