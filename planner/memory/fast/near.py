"""How the TPU compiler's memory space assignment fills a chip's fast memory (XLA's ``memory_space_assignment``).

What saves most memory time for the square root of its bytes comes first, arguments too. It stays from one use to the
next where it lies, if nothing else lies there in that time and the time is not too long; else it is fetched again
before the next use, while a copy of it lies in the large memory, or is read there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from .copies import Copies
from .shelf import Shelf

PREFERRED_OVERLAP = 2.0
"""How often what a copy takes the compiler would have it begin before what it fetches is needed."""

MOST_TRIED = 200
"""At how many points it is looked whether a copy may begin there: where none of these has time, hardly one has."""

MOST_EARLIER = 100
"""How many points the compiler tries at most at which a copy would begin earlier than it prefers, once no later one is
left (``kNumExploredDecreasingIntervals``).
"""

MOST_REPACKED = 4
"""How often all that lies there is put anew to make room (``max_repacks``): its log has no more on v5e and v5p."""

NO_ROOM = -1

LEAST_USED = 0.5
"""What part of a copy into fast memory is used at least, all uses together (``inefficient_use_to_copy_ratio``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """A buffer that may stay: its number, its bytes, the points that read it, in order, the one that makes it (-1 an
    argument's), whether that may leave it in fast memory, and the memory time that is saved where it is near.
    ``used_bytes`` are those that each point reads of it, all if it has none.
    """

    number: int
    num_bytes: int
    uses: Sequence[int]
    made: int
    left_near: bool
    saved_s: float
    used_bytes: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """The fast memory: the second at which each point begins, the bytes that are free at each, which are taken from,
    how fast it is filled, and how long something may stay without being used.
    """

    begins_s: np.ndarray
    room_bytes: np.ndarray
    bytes_per_s: float
    longest_s: float

    def may_stay(self, last: int, use: int) -> bool:
        """Whether what was used at one point may stay there unused until another: from its end to the other's begin
        (``CostAnalysisPrefetchIntervalPicker::GetLogicalIntervalElapsed``).
        """
        return use <= last or bool(self.begins_s[use] - self.begins_s[last + 1] <= self.longest_s)

    def copied_s(self, num_bytes: int, begin: int, use: int) -> tuple[float, float, float]:
        """When a copy into it begins, is needed, and how long it takes."""
        return float(self.begins_s[begin]), float(self.begins_s[use]), num_bytes / self.bytes_per_s


class Stay(NamedTuple):
    """From which point to which other something lies in fast memory, and whether that is its end."""

    first: int
    last: int
    is_last: bool


def near_from(wanted: Iterable[Wanted], memory: Memory, shelf: Shelf | None = None) -> dict[int, tuple[Stay, ...]]:
    """When each buffer lies in fast memory, in order: from the point that makes it or before which it is fetched.

    ``shelf`` has what lies there anyway.
    """
    shelf, copies, repacked = shelf or Shelf(memory.room_bytes), Moves(Copies(), Copies()), 0
    found = dict[int, tuple[Stay, ...]]()
    most = int(memory.room_bytes.max(initial=0))
    for each in sorted((each for each in wanted if each.num_bytes <= most), key=_rank):
        count, before = shelf.count, copies.copy()
        taken = _taken(each, memory, shelf, copies)
        if not taken.has_room and repacked < MOST_REPACKED:
            repacked += 1
            shelf.give_back(count)
            shelf.repack()
            copies = before.copy()
            taken = _taken(each, memory, shelf, copies)
        far = taken.hardly_used
        while far:
            shelf.give_back(count)
            copies = before.copy()
            taken = _taken(each, memory, shelf, copies, far)
            far = far | taken.hardly_used if taken.hardly_used else frozenset()
        if taken.is_stuck:
            shelf.give_back(count)
            copies = before
        elif taken.stays:
            found[each.number] = taken.stays
    return found


def begins(found: Mapping[int, Sequence[Stay]]) -> dict[int, int]:
    """From which point on each buffer lies in fast memory to its end, of those that do."""
    return {number: stays[-1].first for number, stays in found.items() if stays[-1].is_last}


def _rank(each: Wanted) -> tuple[float, int, int, int]:
    return -each.saved_s / math.sqrt(each.num_bytes), -each.num_bytes, each.made, each.number


class Moves(NamedTuple):
    """The copies that are made into fast memory, and those out of it: each way has its own time."""

    fetched: Copies
    evicted: Copies

    def copy(self) -> Moves:
        """The same copies, to which others may be added."""
        return Moves(self.fetched.copy(), self.evicted.copy())


class _Taken(NamedTuple):
    """When a buffer stays, whether it found room wherever it had time to, and the points that read it near for which
    it would be copied, though they use little of it. ``is_stuck`` if it would have to leave while nothing else runs.
    """

    stays: tuple[Stay, ...]
    has_room: bool
    hardly_used: frozenset[int]
    is_stuck: bool = False


def _taken(each: Wanted, memory: Memory, shelf: Shelf, moves: Moves, far: frozenset[int] = frozenset()) -> _Taken:
    """Takes the room of one buffer where it stays; what is ``far`` reads it where it lies.

    Where it is put first, it can stay for as many uses as anywhere. What lies in the large memory may be fetched while
    others still read it there (XLA fetches from ``earliest_available_time`` on).
    """
    copies = moves.fetched
    uses = each.uses or ([each.made] if each.left_near else [])
    found, has_room = list[Stay](), True
    place: int | None = None
    begin = each.made
    last, free = each.made, each.made + (not each.left_near)
    for number, use in enumerate(uses):
        before, lacks = place, False
        if use in far:
            place = None
        elif number == 0 and each.left_near and memory.may_stay(last, use):
            place = _lasting(each.num_bytes, free, uses, memory, shelf)
            lacks = place is None
            if place is not None:
                shelf.take(place, each.num_bytes, free, use)
        elif place is not None:
            stays = memory.may_stay(last, use) and shelf.is_free(place, each.num_bytes, free, use)
            place = place if stays else None
            if place is not None:
                shelf.lengthen(use)
        if place is None:
            if before is not None:
                leaves = begin == each.made and each.left_near
                if leaves and not _is_evicted(each, before, last, use, memory, shelf, moves.evicted):
                    return _Taken((), has_room=True, hardly_used=frozenset(), is_stuck=True)
                found.append(Stay(begin, last, is_last=False))
            was_near = bool(found) or before is not None
            earliest = free if was_near else each.made + 1
            fetched = None if use in far else _fetched(each.num_bytes, earliest, use, memory, shelf, copies)
            if fetched is not None and fetched >= 0:
                begin, place = max(fetched, free), _lasting(each.num_bytes, fetched, uses[number:], memory, shelf)
            if fetched is not None and place is not None:
                shelf.take(place, each.num_bytes, fetched, use)
                copies.add(*memory.copied_s(each.num_bytes, fetched, use))
            elif lacks or fetched is not None:
                has_room = False
        last, free = use, use + 1
    if place is not None:
        found.append(Stay(begin, last, is_last=True))
    return _Taken(tuple(found), has_room, frozenset(_hardly_used(each, found)))


def _is_evicted(each: Wanted, place: int, last: int, use: int, memory: Memory, shelf: Shelf, evicted: Copies) -> bool:
    """Whether a buffer that was made near is copied out of it, between the point that makes it and the end of its stay.

    It stays longer for that, before its next use, up to the preferred time, while its place is free. Some kernel has to
    run meanwhile; where it does not take that long, the copy waits for none (``Evict``).
    """
    first, most = each.made + 1, max(last, use - 1)
    wished_s = memory.begins_s[first] + PREFERRED_OVERLAP * each.num_bytes / memory.bytes_per_s
    wished = min(most, max(last, int(np.searchsorted(memory.begins_s, wished_s))))
    end = next(end for end in range(wished, last - 1, -1) if shelf.is_free(place, each.num_bytes, last + 1, end))
    if end <= first:
        return False
    copied_s = memory.copied_s(each.num_bytes, first, end)
    if not evicted.have_time(*copied_s):
        return True
    evicted.add(*copied_s)
    shelf.lengthen(end)
    return True


def _hardly_used(each: Wanted, stays: Sequence[Stay]) -> Iterator[int]:
    """The points of stays for which a buffer is copied, though all that they read of it is less than half of it."""
    for stay in stays if each.used_bytes else ():
        read = [pair for pair in zip(each.uses, each.used_bytes, strict=True) if stay.first <= pair[0] <= stay.last]
        if stay.first != each.made and sum(size for _, size in read) < LEAST_USED * each.num_bytes:
            yield from (use for use, _ in read)


def _lasting(num_bytes: int, first: int, uses: Sequence[int], memory: Memory, shelf: Shelf) -> int | None:
    """Where a buffer has room from a point to the latest of its uses that it has room for."""
    stays, last = [uses[0]], uses[0]
    for use in uses[1:]:
        if not memory.may_stay(last, use):
            break
        stays.append(use)
        last = use
    places = (shelf.place(num_bytes, first, use) for use in reversed(stays))
    return next((place for place in places if place is not None), None)


def _fetched(num_bytes: int, earliest: int, use: int, memory: Memory, shelf: Shelf, copies: Copies) -> int | None:
    """The point before which a buffer is fetched for a use; None where there is no time, ``NO_ROOM`` where no room."""
    takes_s, begins_s = num_bytes / memory.bytes_per_s, memory.begins_s
    latest = int(np.searchsorted(begins_s[:use], begins_s[use] - takes_s, side="right")) - 1
    if latest < earliest:
        return None
    found: int | None = None
    left_s = begins_s[use] - begins_s[earliest : latest + 1]
    for begin in islice(_begins(takes_s, earliest, latest, left_s, memory.longest_s), MOST_TRIED):
        if copies.have_time(*memory.copied_s(num_bytes, begin, use)):
            if shelf.place(num_bytes, begin, use) is not None:
                return begin
            found = NO_ROOM
    return found


def _begins(takes_s: float, earliest: int, latest: int, left_s: np.ndarray, longest_s: float) -> Iterator[int]:
    """When a copy may begin that leaves so long at each point from the earliest to the latest, best first: about the
    preferred time, then in turns a point later and one earlier, at last those earlier, in steps of a part of the time
    (``CostAnalysisPrefetchIntervalPicker::Next``).
    """
    early = min(int(np.searchsorted(-left_s, -longest_s)), len(left_s) - 1)
    first = early + int(np.argmin(np.abs(left_s[early:] - PREFERRED_OVERLAP * takes_s)))
    yield earliest + first
    before, after, step_s = first - 1, first + 1, float(left_s[early]) / MOST_EARLIER
    while before >= early or after < len(left_s):
        if after < len(left_s):
            yield earliest + after
            after += 1
        if before >= early:
            yield earliest + before
            least_s = float(left_s[before]) + step_s if after == len(left_s) else 0.0
            before -= 1
            while before >= early and left_s[before] < least_s:
                before -= 1
