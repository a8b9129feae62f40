"""How the TPU compiler's memory space assignment fills a chip's fast memory (XLA's ``memory_space_assignment``).

What saves most memory time for the square root of its bytes comes first, arguments too. It stays from one use to the
next where there is room all that time and the time is not too long; else it is fetched again before the next use, while
a copy of it lies in the large memory, or is read there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

PREFERRED_OVERLAP = 2.0
"""How often what a copy takes the compiler would have it begin before what it fetches is needed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A buffer that may stay: its number, its bytes, the points that read it, in order, the one that makes it (-1 an
    argument's), whether that may leave it in fast memory, and the memory time that is saved where it is near.
    """

    number: int
    num_bytes: int
    uses: Sequence[int]
    made: int
    left_near: bool
    saved_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The fast memory: the second at which each point begins, the bytes that are free at each, which are taken from,
    how fast it is filled, and how long something may stay without being used.
    """

    begins_s: np.ndarray
    room_bytes: np.ndarray
    bytes_per_s: float
    longest_s: float


def near_from(wanted: Iterable[Wanted], memory: Memory) -> dict[int, int]:
    """From which point on each buffer lies in fast memory to its end: the one that makes it if it never leaves it.

    What is read from the large memory at the end is left out.
    """
    found = {}
    for each in sorted(wanted, key=_rank):
        begin = _placed(each, memory)
        if begin is not None:
            found[each.number] = begin
    return found


def _rank(each: Wanted) -> tuple[float, int, int]:
    return -each.saved_s / math.sqrt(each.num_bytes), -each.num_bytes, each.number


def _placed(each: Wanted, memory: Memory) -> int | None:
    """Takes the room of one buffer; from which point on it lies there, None if its last use reads it elsewhere."""
    begin = each.made if each.left_near else None
    last, free = each.made, each.made + (not each.left_near)
    for use in each.uses or ([each.made] if each.left_near else []):
        first: int | None = free
        if begin is None or not _stays(each.num_bytes, last, free, use, memory):
            first = begin = _fetched(each.num_bytes, free, use, memory)
        if first is not None:
            memory.room_bytes[first : use + 1] -= each.num_bytes
        last, free = use, use + 1
    return begin


def _stays(num_bytes: int, last: int, free: int, use: int, memory: Memory) -> bool:
    """Whether a buffer can stay from the point that used it last, with room of its own before ``free``, to a use."""
    if memory.begins_s[use] - memory.begins_s[last] > memory.longest_s:
        return False
    return bool(memory.room_bytes[free : use + 1].min(initial=num_bytes) >= num_bytes)


def _fetched(num_bytes: int, earliest: int, use: int, memory: Memory) -> int | None:
    """The point before which a buffer is fetched for a use; None where there is no room or no time."""
    takes_s = num_bytes / memory.bytes_per_s
    begins = memory.begins_s
    first = max(earliest, int(np.searchsorted(begins, begins[use] - PREFERRED_OVERLAP * takes_s)))
    if first >= use:
        return None
    fits = np.minimum.accumulate(memory.room_bytes[first : use + 1][::-1])[::-1] >= num_bytes
    begin = first + int(fits.argmax())
    return begin if fits[begin - first] and begin < use and begins[use] - begins[begin] >= takes_s else None
