"""Where temporaries lie in memory: the compiler's heap, filled in the order of the program."""

from __future__ import annotations

from bisect import bisect_left, insort


class Heap:
    """A best-fit heap: a buffer takes the smallest gap that holds it, else it lies behind the last one.

    So the TPU compiler lays out a program's temporaries: replaying the buffers of compiled programs put each where it
    lies. What is free behind the last buffer is no gap, though the heap was larger before. What other cores write
    (TPU7x) grows from the other side: it lies ``below`` all else, or in gaps.
    """

    def __init__(self) -> None:
        self._begin, self._end, self._most = 0, 0, 0
        self._sizes: list[tuple[int, int]] = []
        self._starts: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    @property
    def size_bytes(self) -> int:
        """How far it has grown."""
        return self._most - self._begin

    def take(self, num_bytes: int, *, below: bool = False) -> int:
        """Takes a place for a buffer and says at which offset it starts."""
        index = bisect_left(self._sizes, (num_bytes,))
        if index < len(self._sizes):
            size, start = self._sizes[index]
            self._forget(start, size)
            if size > num_bytes:
                self._remember(start + num_bytes, size - num_bytes)
            return start
        if below:
            return self._grow_below(num_bytes)
        start, self._end = self._end, self._end + num_bytes
        self._most = max(self._most, self._end)
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
        if end == self._end:
            self._end = start
        else:
            self._remember(start, end - start)

    def _grow_below(self, num_bytes: int) -> int:
        free = self._starts.get(self._begin, 0)
        if free:
            self._forget(self._begin, free)
        self._begin -= num_bytes - free
        return self._begin

    def _remember(self, start: int, size: int) -> None:
        insort(self._sizes, (size, start))
        self._starts[start] = size
        self._ends[start + size] = start

    def _forget(self, start: int, size: int) -> None:
        self._sizes.pop(bisect_left(self._sizes, (size, start)))
        del self._starts[start], self._ends[start + size]
