"""Where buffers lie in fast memory, by address: what is free may be in pieces, none of which has room.

XLA's memory space assignment takes the smallest free piece that a buffer fits into for as long as it stays, the lowest
of equals, and the end of what is taken where none does (``GlobalDecreasingSizeBestFitHeap::FindChunkCandidate``).
Where all is put anew, what stays longest comes first, then what is largest (``BestFitRepacker``).
"""

from __future__ import annotations

import numpy as np


class Shelf:
    """A memory by address and point: ``room_bytes`` is what it has at each point, and is taken from."""

    def __init__(self, room_bytes: np.ndarray) -> None:
        self.room_bytes = room_bytes
        self.height_bytes = room_bytes.copy()
        self.taken = np.empty((64, 4), np.int64)  # the first and the last point, and from where to where, of each
        self.count = 0

    def place(self, num_bytes: int, first: int, last: int) -> int | None:
        """Where so much fits from one point to another; None where nowhere."""
        if self.room_bytes[first : last + 1].min() < num_bytes:
            return None
        height = self._height_bytes(first, last)
        best, least, end = None, 0, 0
        for low, high in self._between(first, last):
            hole = low - end
            if hole >= num_bytes and (best is None or hole < least):
                best, least = end, hole
            end = max(end, high)
        best = end if best is None else best
        return best if best + num_bytes <= height else None

    def is_free(self, place: int, num_bytes: int, first: int, last: int) -> bool:
        """Whether so much is free at a place from one point to another."""
        if first > last:
            return True
        around = self._around(first, last)
        fits = place + num_bytes <= self._height_bytes(first, last)
        return fits and not ((around[:, 2] < place + num_bytes) & (around[:, 3] > place)).any()

    def take(self, place: int, num_bytes: int, first: int, last: int) -> None:
        """Takes so much there."""
        self.put(place, num_bytes, first, last)
        self.room_bytes[first : last + 1] -= num_bytes

    def put(self, place: int, num_bytes: int, first: int, last: int) -> None:
        """Has so much lie there."""
        if self.count == len(self.taken):
            self.taken = np.concatenate([self.taken, np.empty_like(self.taken)])
        self.taken[self.count] = first, last, place, place + num_bytes
        self.count += 1

    def lengthen(self, last: int) -> None:
        """Leaves what was taken last there for longer, until another point."""
        _, end, low, high = self.taken[self.count - 1].tolist()
        self.taken[self.count - 1, 1] = last
        self.room_bytes[end + 1 : last + 1] -= high - low

    def give_back(self, count: int) -> None:
        """Gives back all but so many that were taken first."""
        for first, last, low, high in self.taken[count : self.count].tolist():
            self.room_bytes[first : last + 1] += high - low
        self.count = count

    def repack(self) -> None:
        """Puts all that is taken where it fits together, if all of it finds room so."""
        taken = self.taken[: self.count].copy()
        again = Shelf(self.height_bytes)
        lasting, sizes = taken[:, 1] - taken[:, 0], taken[:, 3] - taken[:, 2]
        order = np.lexsort((-sizes, -lasting))
        for number in order.tolist():
            first, last, num_bytes = int(taken[number, 0]), int(taken[number, 1]), int(sizes[number])
            place = again.place(num_bytes, first, last)
            if place is None:
                return
            again.put(place, num_bytes, first, last)
        self.taken[order] = again.taken[: self.count]

    def _height_bytes(self, first: int, last: int) -> int:
        return int(self.height_bytes[first : last + 1].min())

    def _around(self, first: int, last: int) -> np.ndarray:
        taken = self.taken[: self.count]
        return taken[(taken[:, 0] <= last) & (taken[:, 1] >= first)]

    def _between(self, first: int, last: int) -> list[tuple[int, int]]:
        """From where to where something lies between two points, the lowest first."""
        around = self._around(first, last)[:, 2:]
        return sorted(zip(around[:, 0].tolist(), around[:, 1].tolist(), strict=True))
