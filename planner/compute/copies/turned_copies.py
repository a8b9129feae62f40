"""What copies take that lie transposed, for updates whose gradient does (``turned`` says which these are)."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

from ...graph import Value
from ..speed import Speed
from ..work import REGISTER_ELEMENTS, padded_bytes, padded_elements
from .turned import WIDE_EDGE

TURNING_CYCLES = 15.0
"""What transposing 1024 numbers takes, seen on v6e and tpu7x: of half words as much."""


class Copies(NamedTuple):
    """What a kernel copies transposed: ``taken`` arguments and ``given`` results, of all that is ``around`` it."""

    taken: Sequence[Value]
    given: Sequence[Value]
    around: Sequence[Value]

    @classmethod
    def of(
        cls, copied: Iterable[int], made: Container[int], around: Iterable[int], part: Callable[[int], Value]
    ) -> Copies:
        """The values of these numbers, of which those ``made`` are results."""
        parts = [(part(value), value in made) for value in copied]
        taken, given = ([own for own, is_made in parts if is_made == wanted] for wanted in (False, True))
        return cls(taken, given, [part(value) for value in around])


def copies_seconds(copies: Copies, speed: Speed) -> float:
    """Seconds of transposed copies."""
    return copies_cycles(copies, speed) / speed.clock_hz if speed.edge >= WIDE_EDGE else 0.0


def crossings(around: Iterable[Value], speed: Speed) -> float:
    """How often transposed copies for a kernel cross to memory, on average: once for what vector memory has room for of
    all that the kernel works on, and twice for the rest (seen on v6e).
    """
    return 2 - min(speed.coefficients.near_total_bytes / max(sum(map(padded_bytes, around)), 1), 1.0)


def copies_cycles(copies: Copies, speed: Speed) -> float:
    """Cycles of transposed copies, turned register by register, as often as each crosses to memory; where all is at
    hand the arguments were brought near before.
    """
    often = crossings(copies.around, speed)
    moved = copies.given if often == 1 else (*copies.taken, *copies.given)
    return often * sum(_side_cycles(value, speed) for value in moved)


def _side_cycles(value: Value, speed: Speed) -> float:
    """What going through a value takes once: its bytes, and half of turning its numbers."""
    turned = TURNING_CYCLES / 2 * padded_elements(value.shape) / REGISTER_ELEMENTS
    return speed.coefficients.byte_cycles * padded_bytes(value) + turned
