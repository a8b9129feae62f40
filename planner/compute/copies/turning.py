"""What a copy takes that brings other dims onto the lanes: window by window, as it comes and as it goes.

Seen on copies in programs compiled for v4, v5e and v5p: windows of 768 registers, those read and those written, wait
for memory on either side that lies there. For v3 a copy takes 10 cycles a register on either side, in whatever dtype.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..coefficients import Coefficients

FIRST_CYCLES = 10.0
WINDOW_REGISTERS = 768
FAR_SHARE = 1.05
"""What a byte takes that such a copy reads from the large memory or writes there, against one of fused operations: 1.0
on v3, 1.1 on v4 and v5e.
"""

COMMON_SHARE = 0.45
"""The same of the memory that v4's cores share."""

NEAR_CYCLES = 0.15
"""For each register of what stands in vector memory, seen on v5e and v6e."""

NEAR_SHARE = 0.42
"""How much of the vector memory that is given to values a copy may take on both sides for what it makes to stand there,
where nothing is known of what else does.
"""

ROOM_SHARE = 0.8
"""The same where what earlier copies left there is counted: of two copies of tables both stand there on v5e, one on
v6e; of 16 such in one program for v5e, 3.
"""


class Side(NamedTuple):
    """What a copy reads, or what it makes: the registers that this fills, and its bytes."""

    registers: float
    num_bytes: float


def room_bytes(of: Coefficients) -> float:
    """How much of the vector memory copies may take."""
    return ROOM_SHARE * of.near_total_bytes


def turning_cycles(
    read: Side,
    made: Side,
    of: Coefficients,
    *,
    is_result: bool = False,
    free_bytes: float | None = None,
    came_near: bool | None = None,
    leaves: bool | None = None,
) -> float:
    """Cycles of a copy; what a step's result becomes so is in the large memory. ``free_bytes`` are those of the vector
    memory that earlier copies left free, if that is known, as is whether what it reads ``came_near``, and whether it
    ``leaves`` near what it makes.
    """
    if came_near is None or not of.near_total_bytes:
        came_near = read.num_bytes <= (NEAR_SHARE * of.near_total_bytes or of.common_bytes)
    left_near = not is_result and (leaves_near(read, made, of, free_bytes) if leaves is None else leaves)
    return sides_cycles(read, made, of, read_near=came_near, made_near=left_near)


def sides_cycles(read: Side, made: Side, of: Coefficients, *, read_near: bool, made_near: bool) -> float:
    """Cycles of a copy of which it is known what of it stands in vector memory or a common one."""
    if not of.held_near_bytes:
        return max(FIRST_CYCLES * (read.registers + made.registers), (read.num_bytes + made.num_bytes) * of.byte_cycles)
    windows = math.ceil((read.registers + made.registers) / WINDOW_REGISTERS)
    return _side_cycles(read, windows, of, is_near=read_near) + _side_cycles(made, windows, of, is_near=made_near)


def leaves_near(read: Side, made: Side, of: Coefficients, free_bytes: float | None) -> bool:
    """Whether what a copy makes stands in vector memory or a common one."""
    if not of.near_total_bytes:
        return made.num_bytes <= of.common_bytes
    room = NEAR_SHARE * of.near_total_bytes if free_bytes is None else free_bytes
    return read.num_bytes + made.num_bytes <= room


def _side_cycles(side: Side, windows: int, of: Coefficients, *, is_near: bool) -> float:
    if is_near and of.near_total_bytes:
        return NEAR_CYCLES * side.registers
    share = COMMON_SHARE if is_near else FAR_SHARE
    return share * side.num_bytes * of.byte_cycles + windows * of.step_cycles
