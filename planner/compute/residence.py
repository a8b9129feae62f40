"""Which values stand in a chip's vector memory when a kernel reads them, in the order in which kernels run."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Protocol

from ..graph import Graph
from .coefficients import Coefficients

AHEAD = 4.0


class Near(Protocol):
    """Knows what a whole step has in fast memory, and when."""

    def is_near(self, value: int, point: int) -> bool:
        """Whether a value lies there where the kernel at this position reads or writes it."""

    def inside(self, point: int) -> Sequence[Near]:
        """The same of what runs in the kernel at this position, by its bodies."""


def copied_results(graph: Graph) -> dict[int, int]:
    """The results that kernels may leave in vector memory, from where they are copied while the next one runs, and the
    donated arguments in whose places they are written (seen on v5e, v5p and v6e). All others are made in the large
    memory.
    """
    kept = {value for place, value in enumerate(graph.results) if place not in graph.aliases}
    pairs = ((graph.results[place], graph.arguments[argument]) for place, argument in graph.aliases.items())
    return {result: argument for result, argument in pairs if result not in kept}


class Residence:
    """Vector memory as the compiler assigns it: what was made or fetched last stays, and what memory's idle time allows
    is fetched before it is needed: all of it where memory was ``idle``, but for what is read from ``far``.

    Of a whole step, or a turn, ``near`` knows better of what it makes, and of more of what is ``given``; a result in a
    donated argument's place (``leaving``) is left in vector memory where that lies there (seen on v4, v5p and v6e).
    """

    def __init__(
        self,
        of: Coefficients,
        *,
        idle: bool = False,
        leaving: Mapping[int, int] = MappingProxyType({}),
        given: Collection[int] = (),
        near: Near | None = None,
        far: Collection[int] = (),
    ) -> None:
        self._of, self._idle, self._leaving, self._far = of, idle, leaving, frozenset(far)
        self._near, self._given = near, frozenset(given)
        self._most_bytes, self._value_bytes = of.held_near_bytes, of.value_near_bytes
        self._copied_bytes = self._before_bytes = 0
        self._held: OrderedDict[int, int] = OrderedDict()
        self._held_bytes = self._shared_bytes = 0
        self._staying: set[int] = set()
        self._fetched_at = 0.0
        self._begun = False
        self._in_use_bytes = 0
        self._point = 0
        self._at_hand: set[int] = set()
        self.now = 0.0

    def next_kernel(self, point: int) -> None:
        """Says that the kernel at this position begins: what the last one worked on may go, but for what is copied from
        it.
        """
        self._before_bytes = self._in_use_bytes
        self._in_use_bytes, self._copied_bytes = self._copied_bytes, 0
        self._point = point
        self._at_hand.clear()

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
        """Whether a value is in vector memory when it is read now; ``fetched`` if it is worth fetching there anyway."""
        is_near = self._is_held(value, num_bytes, fetched=fetched)
        if self._near is not None and value not in self._staying and not (is_near and value in self._given):
            is_near = self._near.is_near(value, self._point)
        if is_near:
            self._at_hand.add(value)
        return is_near

    def writes(self, value: int, num_bytes: int, is_result: bool) -> bool:
        """Whether a value is left in vector memory."""
        is_near = self._is_left(value, num_bytes, is_result=is_result)
        if self._near is None or value in self._staying:
            return is_near
        if value in self._leaving:
            return not is_result and self._leaving[value] in self._at_hand
        return not is_result and self._near.is_near(value, self._point)

    def _is_held(self, value: int, num_bytes: int, *, fetched: bool) -> bool:
        if value in self._staying:
            return True
        if value in self._far or self._in_use_bytes + num_bytes > self._most_bytes:
            return False
        if value in self._held:
            self._held.move_to_end(value)
            self._in_use_bytes += num_bytes
            return True
        if (
            not (fetched or self._fetches_beside(num_bytes))
            or not self._fits(num_bytes)
            or not self._fetched_in_time(num_bytes)
        ):
            return False
        self._hold(value, num_bytes)
        self._in_use_bytes += num_bytes
        return True

    def _is_left(self, value: int, num_bytes: int, *, is_result: bool) -> bool:
        if value in self._staying:
            return True
        if is_result or not self._fits(num_bytes) or self._in_use_bytes + num_bytes > self._most_bytes:
            return False
        self._in_use_bytes += num_bytes
        if value in self._leaving:
            self._copied_bytes += num_bytes
        self._hold(value, num_bytes)
        return True

    def alone(
        self, reads: Sequence[tuple[int, bool]], writes: Sequence[tuple[int, bool]]
    ) -> tuple[list[bool], list[bool]]:
        """What of what a kernel reads, bytes and whether that is fetched, and leaves, bytes and whether it may be near,
        would be near if no other kernel had any of this memory.
        """
        used, found = 0, list[bool]()
        for num_bytes, may_be in (*reads, *writes):
            is_near = may_be and self._fits(num_bytes) and used + num_bytes <= self._most_bytes
            used += num_bytes * is_near
            found.append(is_near)
        return found[: len(reads)], found[len(reads) :]

    def renames(self, values: Sequence[int], by: Sequence[int]) -> None:
        """Says that values of the same bytes have other numbers: those of a reshape."""
        if len(values) == len(by) == 1 and values[0] in self._held:
            self._hold(by[0], self._held[values[0]])

    def _fetches_beside(self, num_bytes: int) -> bool:
        """Whether there is room besides what the kernel before works on, where fused operations read near for nothing
        (seen on v6e).
        """
        room = self._most_bytes - self._before_bytes - self._in_use_bytes
        return not self._idle and not self._of.near_read_share and num_bytes <= room

    def _fits(self, num_bytes: int) -> bool:
        return num_bytes <= self._value_bytes

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
        while self._held_bytes > self._most_bytes and len(self._held) > 1:
            self._held_bytes -= self._held.popitem(last=False)[1]
