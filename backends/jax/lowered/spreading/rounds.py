"""The rounds in which Shardy goes over a step's operations until none has anything to tell its tensors.

Follows ``op_priority_propagation.cc``, ``basic_propagation.cc`` and MLIR's greedy driver, whose worklist it keeps: an
operation whose tensors changed is looked at next, the last that was told so first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from .rule import Layout, Rule

MOST_KNOWN = 5_000
Changes = tuple[tuple[int, int], ...]
"""The positions of an operation's tensors that change, operands first, each with the number of its new layout."""


class Told:
    """What operations of one rule are told whose factors go in these directions, by the numbers of their layouts."""

    __slots__ = ("directions", "known", "layouts", "rule")

    def __init__(self, rule: Rule, directions: tuple[int, ...], layouts: Layouts):
        self.rule, self.directions, self.layouts = rule, directions, layouts
        self.known: dict[tuple[int, ...], Changes | None] = {}

    def work_out(self, before: tuple[int, ...]) -> Changes | None:
        """The changes, which are known from then on; None for none."""
        found = None
        if any(self.directions) and any(before):
            lying = [self.layouts.of(number) for number in before]
            spread = self.rule.spread(self.directions, lying)
            if spread is not None:
                pairs = enumerate(zip(lying, spread, strict=True))
                found = tuple([(at, self.layouts.number(new)) for at, (old, new) in pairs if old != new])
        if len(self.known) > MOST_KNOWN:
            self.known.clear()
        self.known[before] = found
        return found


class Layouts:
    """Layouts by number; 0 is that of a tensor of which nothing is said."""

    def __init__(self) -> None:
        self._numbers: dict[Layout | None, int] = {None: 0}
        self._all: list[Layout | None] = [None]

    def number(self, layout: Layout | None) -> int:
        """The number of a layout."""
        found = self._numbers.get(layout)
        if found is None:
            found = self._numbers[layout] = len(self._all)
            self._all.append(layout)
        return found

    def of(self, number: int) -> Layout | None:
        """The layout of this number."""
        return self._all[number]


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """The operations that have a rule, in order: the numbers of each one's operands and results (``values``), and by
    round what it is ``told``. ``touched`` are those to look at once a value's layout changes: its maker and its
    readers. ``returned`` are the values that the step returns, ``leaving`` what each and its result are told.
    """

    values: tuple[tuple[int, ...], ...]
    told: tuple[tuple[Told, ...], ...]
    touched: tuple[tuple[int, ...], ...]
    returned: tuple[int, ...]
    leaving: tuple[Told, ...]
    takes: tuple[Callable[[Sequence[int]], tuple[int, ...]], ...]
    """What picks each operation's tensors from all."""
    begins: tuple[tuple[int, ...], ...]
    """By round the operations that are told otherwise than in the one before."""
    left: Mapping[int, int]
    """By what a loop's turns read, what it leaves, which lies so too."""

    def spread(self, layouts: Sequence[int], results: Sequence[int]) -> tuple[list[int], list[int]]:
        """How values and results lie after propagation, by the numbers of their layouts, from how they lie before."""
        lying, leaving = list(layouts), list(results)
        settled = bytearray(b"\1" * len(self.values))
        for told, begins in zip(self.told, self.begins, strict=True):
            for node in begins:
                settled[node] = 0
            self._leave(lying, leaving, settled)
            self._round(told, lying, settled)
            self._leave(lying, leaving, settled)
        for turning, left in self.left.items():
            lying[turning] = lying[left]
        return lying, leaving

    def _leave(self, lying: list[int], leaving: list[int], settled: bytearray) -> None:
        """What the step returns and its results tell one another."""
        for position, (value, told) in enumerate(zip(self.returned, self.leaving, strict=True)):
            before = lying[value], leaving[position]
            found = told.known[before] if before in told.known else told.work_out(before)
            for at, layout in found or ():
                if at:
                    leaving[position] = layout
                else:
                    lying[value] = layout
                    for node in self.touched[value]:
                        settled[node] = 0

    def _round(self, told: Sequence[Told], lying: list[int], settled: bytearray) -> None:
        takes, touched, values = self.takes, self.touched, self.values
        known, again = [each.known for each in told], list[int]()
        first = settled.find(0)
        while first >= 0:
            waiting = [first]
            while waiting:
                node = waiting.pop()
                before = takes[node](lying)
                try:
                    changes = known[node][before]
                except KeyError:
                    changes = told[node].work_out(before)
                settled[node] = 1
                if changes is None:
                    continue
                own = values[node]
                for at, layout in changes:
                    value = own[at]
                    lying[value] = layout
                    for each in touched[value]:
                        if each == node:
                            continue
                        settled[each] = 0
                        if each <= first and each not in waiting:
                            waiting.append(each)
                again.append(node)
            first = settled.find(0, first + 1)
        for node in again:
            settled[node] = 0
