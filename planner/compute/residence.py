"""Which values stand in a chip's vector memory when a kernel reads them, in the order in which kernels run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from .coefficients import Coefficients

AHEAD = 4.0


class Residence:
    """Vector memory as the compiler assigns it: what was made or fetched last stays, and what memory's idle time allows
    is fetched before it is needed: all of it where memory was ``idle``.
    """

    def __init__(self, of: Coefficients, *, idle: bool = False) -> None:
        self._of, self._idle = of, idle
        self._held: OrderedDict[int, int] = OrderedDict()
        self._held_bytes = self._shared_bytes = 0
        self._staying: set[int] = set()
        self._fetched_at = 0.0
        self._begun = False
        self._in_use_bytes = 0
        self.now = 0.0

    def next_kernel(self) -> None:
        """Says that the next kernel begins: what the last one worked on may go."""
        self._in_use_bytes = 0

    def stays(self, values: Sequence[int], num_bytes: int, *, changes: bool) -> bool:
        """Keeps a value, and those that take its place if it ``changes``, for good, if there is room: whether it is."""
        if not changes and self._shared_bytes + num_bytes <= self._of.shared_bytes:
            self._shared_bytes += num_bytes
            self._staying.update(values)
            return True
        fits = self._fits(num_bytes) and not (changes and num_bytes > self._of.carried_bytes)
        if fits and self._held_bytes + num_bytes <= self._of.near_total_bytes:
            self._held_bytes += num_bytes
            self._staying.update(values)
            return True
        return False

    def begin(self, sized: Sequence[tuple[int, int]]) -> None:
        """Fetches the largest of these, bytes and values, that fits: the compiler has one argument at hand before a
        step begins.
        """
        fitting = [(size, value) for size, value in sized if self._fits(size)]
        if fitting and not self._begun:
            size, value = max(fitting)
            self._hold(value, size)
        self._begun |= bool(sized)

    def reads(self, value: int, num_bytes: int, fetched: bool) -> bool:
        """Whether a value is in vector memory when it is read now; ``fetched`` if it is worth fetching there."""
        if value in self._staying:
            return True
        if self._in_use_bytes + num_bytes > self._of.held_near_bytes:
            return False
        if value in self._held:
            self._held.move_to_end(value)
            self._in_use_bytes += num_bytes
            return True
        if not fetched or not self._fits(num_bytes) or not self._fetched_in_time(num_bytes):
            return False
        self._hold(value, num_bytes)
        self._in_use_bytes += num_bytes
        return True

    def writes(self, value: int, num_bytes: int, is_result: bool) -> bool:
        """Whether a value is left in vector memory."""
        if value in self._staying:
            return True
        if is_result or not self._fits(num_bytes) or self._in_use_bytes + num_bytes > self._of.held_near_bytes:
            return False
        self._in_use_bytes += num_bytes
        self._hold(value, num_bytes)
        return True

    def renames(self, values: Sequence[int], by: Sequence[int]) -> None:
        """Says that values of the same bytes have other numbers: those of a reshape."""
        if len(values) == len(by) == 1 and values[0] in self._held:
            self._hold(by[0], self._held[values[0]])

    def _fits(self, num_bytes: int) -> bool:
        return num_bytes <= self._of.value_near_bytes

    def _fetched_in_time(self, num_bytes: int) -> bool:
        if self._idle:
            return True
        takes = num_bytes * self._of.byte_cycles
        ready = max(self._fetched_at, self.now - AHEAD * takes) + takes
        if ready > self.now:
            return False
        self._fetched_at = ready
        return True

    def _hold(self, value: int, num_bytes: int) -> None:
        self._held_bytes += num_bytes - self._held.pop(value, 0)
        self._held[value] = num_bytes
        while self._held_bytes > self._of.held_near_bytes and len(self._held) > 1:
            self._held_bytes -= self._held.popitem(last=False)[1]
