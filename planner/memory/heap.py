"""Where temporaries lie in memory: the compiler's heap, filled in the order of the program."""

from __future__ import annotations

from bisect import bisect_left, insort


class Heap:
    """A best-fit heap: a buffer takes the smallest gap that holds it, else the heap grows at its end.

    So the TPU compiler lays out a program's temporaries; replaying the buffers of compiled programs gave their sizes to
    the alignment. ``top_bytes`` is how far it has grown.
    """

    def __init__(self) -> None:
        self.top_bytes = 0
        self._end = 0
        self._sizes: list[tuple[int, int]] = []
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def take(self, num_bytes: int) -> int:
        """Takes a place for a buffer and says at which offset it starts."""
        index = self._fitting(num_bytes)
        if index is not None:
            size, start = self._sizes[index]
            self._forget(start, size)
            if size > num_bytes:
                self._remember(start + num_bytes, size - num_bytes)
            return start
        start = self._ends.get(self._end, self._end)
        if start < self._end:
            self._forget(start, self._end - start)
        self._end = start + num_bytes
        self.top_bytes = max(self.top_bytes, self._end)
        return start

    def give(self, start: int, num_bytes: int) -> None:
        """Gives the place of a buffer back, joining it with the gaps beside it."""
        if not num_bytes:
            return
        end = start + num_bytes
        before, after = self._ends.get(start), self._starts.get(end)
        if before is not None:
            self._forget(before, start - before)
            start = before
        if after is not None:
            self._forget(end, after)
            end += after
        self._remember(start, end - start)

    def _fitting(self, num_bytes: int) -> int | None:
        index = bisect_left(self._sizes, (num_bytes, -1))
        return index if index < len(self._sizes) else None

    def _remember(self, start: int, size: int) -> None:
        insort(self._sizes, (size, start))
        self._starts[start] = size
        self._ends[start + size] = start

    def _forget(self, start: int, size: int) -> None:
        self._sizes.pop(bisect_left(self._sizes, (size, start)))
        del self._starts[start], self._ends[start + size]
