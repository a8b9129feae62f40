"""Groups that go through the same elements become one: it reads once what both read, and need not write what one hands
to the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from ..graph import Graph
from .group import Group
from .nature import ELEMENTWISE, REDUCE, UPDATE
from .uses import Uses

READERS = 64
"""What more kernels read than this is not looked through for pairs of them."""


class Merging:
    """Groups by number, which of them makes each value and which ones read it, as they are merged."""

    def __init__(self, graph: Graph, uses: Uses, found: list[Group]) -> None:
        self.graph, self.uses = graph, uses
        self.groups: dict[int, Group] = dict(enumerate(found))
        self.maker = {v: n for n, group in self.groups.items() for root in group.roots for v in graph.ops[root].results}
        self.readers: dict[int, set[int]] = {}
        self.firsts: list[int] = []
        self.lasts: list[int] = []
        for number, group in self.groups.items():
            for value in group.reads:
                self.readers.setdefault(value, set()).add(number)

    def run(self) -> list[Group]:
        """The groups after all merges."""
        for number in list(self.groups):
            self._hand_on(number)
        for value in list(self.readers):
            self._share(value)
        return list(self.groups.values())

    def _hand_on(self, number: int) -> None:
        """Merges a group with those that read what it makes."""
        merged = True
        while merged and number in self.groups:
            merged = any(self._merge(number, reader) for reader in self._reading(number))

    def _reading(self, number: int) -> list[int]:
        group = self.groups[number]
        if not group.open:
            return []
        made = (value for root in group.roots for value in self.graph.ops[root].results)
        return sorted({r for v in made if self._is_whole(v, group) for r in self.readers.get(v, ()) if r != number})

    def _share(self, value: int) -> None:
        """Merges what goes through a value side by side: reductions of it, and chains that read nothing else."""
        numbers = sorted(self.readers.get(value, ()))
        if len(numbers) < 2 or len(numbers) > READERS:
            return
        for position, first in enumerate(numbers):
            for second in numbers[position + 1 :]:
                if first not in self.groups or second not in self.groups:
                    continue
                if self._is_gone_through(value, first, second):
                    self._merge(first, second)

    def _is_gone_through(self, value: int, first: int, second: int) -> bool:
        one, other = self.groups[first], self.groups[second]
        if one.products or other.products or not self._is_whole(value, one) or not self._is_whole(value, other):
            return False
        if one.reduces and other.reduces:
            return True
        first_reads, second_reads = (
            {v for v in group.reads if self.graph.values[v].num_elements > 1} for group in (one, other)
        )
        return first_reads <= second_reads or second_reads <= first_reads

    def _is_whole(self, value: int, group: Group) -> bool:
        return self.graph.values[value].num_elements == group.space

    def _merge(self, first: int, second: int) -> bool:
        one, other = self.groups[first], self.groups[second]
        fits = one.open and other.open and one.space == other.space and one.products + other.products <= 1
        if not fits or not self._hands_over_whole(one, other):
            return False
        if self._path(first, second) or self._path(second, first, skip_direct=True):
            return False
        self._join(first, second)
        return True

    def _hands_over_whole(self, one: Group, other: Group) -> bool:
        """Whether what the second reads of the first it reads element by element: no reduction that must end before,
        no product's operand.
        """
        made = [v for root in one.roots for v in self.graph.ops[root].results if v in other.reads]
        if made and other.products:
            return False
        return all(self._is_whole(value, other) and self._is_read_in_step(value, other) for value in made)

    def _is_read_in_step(self, value: int, group: Group) -> bool:
        kinds = (self.graph.ops[reader].kind for reader, _ in self.uses.readers[value] if reader in group.ops)
        return all(kind in ELEMENTWISE or kind in (REDUCE, UPDATE, "reshape") for kind in kinds)

    def _join(self, first: int, second: int) -> None:
        one, other = self.groups[first], self.groups.pop(second)
        one.ops |= other.ops
        one.roots |= other.roots
        self._span(one.roots)
        one.products += other.products
        one.reduces |= other.reduces
        for value in other.reads:
            self.readers[value].discard(second)
            self.readers[value].add(first)
        one.reads |= other.reads
        for value, maker in self.maker.items() if len(other.roots) > 8 else self._made(other):
            if maker == second:
                self.maker[value] = first
        for root in one.roots:
            for value in self.graph.ops[root].results:
                one.reads.discard(value)
                self.readers.get(value, set()).discard(first)

    def _span(self, roots: set[int]) -> None:
        """Notes from which to which operation a group of several reaches, joined with what overlaps it."""
        first, last = min(roots), max(roots)
        begin, end = bisect_left(self.lasts, first), bisect_right(self.firsts, last)
        if begin < end:
            first, last = min(first, self.firsts[begin]), max(last, self.lasts[end - 1])
        self.firsts[begin:end], self.lasts[begin:end] = [first], [last]

    def _latest(self, root: int) -> int:
        """The last operation that one needs, at most: it may read what a group makes that is done only later."""
        index = bisect_right(self.firsts, root) - 1
        return max(root, self.lasts[index]) if index >= 0 else root

    def _made(self, group: Group) -> list[tuple[int, int]]:
        return [(v, self.maker[v]) for root in group.roots for v in self.graph.ops[root].results]

    def _path(self, start: int, goal: int, skip_direct: bool = False) -> bool:
        """Whether ``start`` needs ``goal``, directly (unless that is skipped) or through others."""
        oldest = min(self.groups[goal].ops)
        waiting, seen = [start], {start}
        while waiting:
            here = waiting.pop()
            for value in self.groups[here].reads:
                maker = self.maker.get(value)
                if maker is None or maker in seen:
                    continue
                if maker == goal:
                    if here == start and skip_direct:
                        continue
                    return True
                if self._latest(max(self.groups[maker].roots)) < oldest:
                    continue
                seen.add(maker)
                waiting.append(maker)
        return False
