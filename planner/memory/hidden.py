"""The order in which v5e runs kernels so that gathers are hidden: XLA's latency-hiding scheduler, bottom up.

It goes through a program from its end. A kernel may come next once all that reads what it makes is placed; of those
that may, the one comes first that waits for the longest chain of gathers, then the last one in the order of memory. A
gather is awaited as soon as it may be and none other is under way; it begins no sooner than what takes its time is
placed in between, whatever that is: gradients of weights, which only the end of the step needs, among it. It begins
then where another one waits for its turn, else where its own comes, by what its operand waits for. Permutes are hidden
too, any number at a time.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

import numpy as np

from ..chip import Chip
from ..graph import Graph
from ..kernels import Kernel, Program
from ..kinds import ALL_GATHER, COLLECTIVE_PERMUTE
from .combined import Members, in_order
from .flow import Flow, regrouped
from .orders import users
from .vmem import begins_s

WAYS_OF_A_DIM = 4
"""What is sent over a dim goes over two links, both ways: 1 MiB on 16 chips of v5e is hidden by products of 3 us."""

UNKNOWN_BYTES_PER_S = 4e11

BRIEF_S = 1e-6
"""A gather that takes less is not awaited as soon as it may be, but in its turn among all else: token ids of 64 KiB,
which only a table's gradient needs, are gathered before the first layer on v5e, weights of 1 MiB just in time.
"""


def hidden(program: Program, flow: Flow, chip: Chip, joint: Members = ()) -> list[int]:
    """The order in which each gather stands where it begins; what is ``joint`` is one."""
    graph = program.graph
    sends = [_sends(graph, each) for each in program.kernels]
    if ALL_GATHER not in sends:
        return list(range(len(sends)))
    takes_s = list(_takes_s(program, chip, sends))
    if not joint:
        return _BottomUp(flow, sends, takes_s).run()
    members = in_order(flow, joint)
    took_s = [sum(takes_s[kernel] for kernel in group) for group in members]
    order = _BottomUp(regrouped(flow, members), [sends[group[0]] for group in members], took_s).run()
    return [kernel for group in order for kernel in members[group]]


def _sends(graph: Graph, kernel: Kernel) -> str | None:
    """The gather or the permute that a kernel is."""
    kind = graph.ops[kernel.ops[0]].kind
    return kind if len(kernel.ops) == 1 and kind in (ALL_GATHER, COLLECTIVE_PERMUTE) else None


def _takes_s(program: Program, chip: Chip, sends: Sequence[str | None]) -> Iterator[float]:
    """The seconds of each kernel, a gather's those of the whole over all links of its chip, a permute's over one."""
    link = chip.ici.link_gb_per_s * 1e9 if chip.ici else UNKNOWN_BYTES_PER_S
    links = {ALL_GATHER: WAYS_OF_A_DIM * len(chip.dims) if chip.ici else 1, COLLECTIVE_PERMUTE: 1}
    for kernel, kind, took_s in zip(program.kernels, sends, np.diff(begins_s(program, chip)), strict=True):
        whole = sum(program.graph.values[value].num_bytes for value in kernel.writes)
        yield whole / (links[kind] * link) if kind else float(took_s)


class _BottomUp:
    """The kernels placed so far, the last first, and those that may come next, first that with the least numbers."""

    def __init__(self, flow: Flow, sends: Sequence[str | None], takes_s: list[float]) -> None:
        self.takes_s = takes_s
        self.sends = sends
        self.makers = [list(dict.fromkeys([flow.maker[value] for value in values])) for values in flow.operands]
        self.depths_s = self._depths_s()
        self.unplaced = [len(each) for each in users(flow)]
        self.placed: list[int] = []
        self.ready: list[tuple[float, int]] = []
        self.awaited: list[tuple[float, int]] = []
        self.on_the_way: list[tuple[float, int]] = []
        self.now_s = 0.0

    def _depths_s(self) -> list[float]:
        """The longest chain of gathers up to each kernel, with its own."""
        depths = list[float]()
        for kernel, makers in enumerate(self.makers):
            before = max([depths[maker] for maker in makers], default=0.0)
            depths.append(before + (self.takes_s[kernel] if self.sends[kernel] == ALL_GATHER else 0.0))
        return depths

    def run(self) -> list[int]:
        """The order."""
        for kernel, count in enumerate(self.unplaced):
            if not count:
                self._let(kernel)
        while self.ready or self.awaited or self.on_the_way:
            if self.awaited:
                self._hide(heapq.heappop(self.awaited))
            elif self.ready and self.sends[-self.ready[0][1]] and not self._arrives():
                self._hide(heapq.heappop(self.ready))
            else:
                self._next()
        return self.placed[::-1]

    def _hide(self, gather: tuple[float, int]) -> None:
        """Places what stands beside a gather, and then its begin."""
        kernel = -gather[1]
        due_s = self.now_s + self.takes_s[kernel]
        begin = self.takes_s[kernel] - self.depths_s[kernel], -kernel
        while self.ready and (self.now_s < due_s or (not self.awaited and self.ready[0] < begin)):
            self._next()
        self.now_s = max(self.now_s, due_s)
        self._place(kernel)

    def _next(self) -> None:
        """Places what may come next: a permute's begin once that has arrived, or where there is nothing else.

        A brief gather waits where another is under way.
        """
        if self._arrives():
            due_s, number = heapq.heappop(self.on_the_way)
            self.now_s = max(self.now_s, due_s)
        else:
            depth_s, number = heapq.heappop(self.ready)
            if self.sends[-number]:
                heapq.heappush(self.awaited, (depth_s, number))
                return
        self._place(-number)

    def _arrives(self) -> bool:
        return bool(self.on_the_way) and (not self.ready or self.on_the_way[0][0] <= self.now_s)

    def _place(self, kernel: int) -> None:
        self.placed.append(kernel)
        if self.sends[kernel] is None:
            self.now_s += self.takes_s[kernel]
        for maker in self.makers[kernel]:
            self.unplaced[maker] -= 1
            if not self.unplaced[maker]:
                self._let(maker)

    def _let(self, kernel: int) -> None:
        if self.sends[kernel] == COLLECTIVE_PERMUTE:
            heapq.heappush(self.on_the_way, (self.now_s + self.takes_s[kernel], -kernel))
            return
        waits = self.sends[kernel] and self.takes_s[kernel] >= BRIEF_S
        queue = self.awaited if waits else self.ready
        heapq.heappush(queue, (-self.depths_s[kernel], -kernel))
