"""What a copy takes that brings other dims onto the lanes: register by register, as it comes and as it goes.

Seen on copies in programs compiled for v3 (10 cycles a register on either side, in whatever dtype), v4, v5e and v5p
(6).
"""

from __future__ import annotations

from .coefficients import Coefficients

FIRST_CYCLES, LATER_CYCLES = 10.0, 6.0
NEAR_CYCLES = 0.15
"""For each register where all of a copy stands in vector memory, seen on v5e and v6e."""

NEAR_SHARE = 0.43
"""How much of the vector memory that is given to values a copy may take on both sides to stand there."""


def turning_cycles(registers: float, num_bytes: float, of: Coefficients, *, is_result: bool = False) -> float:
    """Cycles of a copy that fills so many registers, those read and those written, and as many bytes; what a step's
    result becomes so is in the large memory.
    """
    if num_bytes <= NEAR_SHARE * of.near_total_bytes and not is_result:
        return NEAR_CYCLES * registers
    each = LATER_CYCLES if of.held_near_bytes else FIRST_CYCLES
    return max(each * registers, num_bytes * of.byte_cycles)
