"""The order in which v5e runs kernels so that gathers are hidden: XLA's latency-hiding scheduler, bottom up.

It goes through a program from its end. A kernel may come next once all that reads what it makes is placed; of those
that may, the one comes first that waits for the longest chain of gathers, then the last one in the order of memory. A
gather is awaited as soon as it may be and none other is under way; it begins no sooner than what takes its time is
placed in between, whatever that is: gradients of weights, which only the end of the step needs, among it. It begins
then where another one waits for its turn, else where its own comes.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from ..chip import Chip
from ..kernels import Program
from ..kinds import ALL_GATHER
from .flow import Flow
from .orders import users
from .vmem import begins_s

WAYS_OF_A_DIM = 4
"""What is sent over a dim goes over two links, both ways: 1 MiB on 16 chips of v5e is hidden by products of 3 us."""

UNKNOWN_BYTES_PER_S = 4e11


def hidden(program: Program, flow: Flow, chip: Chip) -> list[int]:
    """The order in which each gather stands where it begins."""
    graph = program.graph
    gathers = [[graph.ops[op].kind for op in each.ops] == [ALL_GATHER] for each in program.kernels]
    if not any(gathers):
        return list(range(len(gathers)))
    return _BottomUp(flow, gathers, list(_takes_s(program, chip, gathers))).run()


def _takes_s(program: Program, chip: Chip, gathers: list[bool]) -> Iterator[float]:
    """The seconds of each kernel, a gather's those of the whole over all links of its chip."""
    links = WAYS_OF_A_DIM * len(chip.dims)
    bytes_per_s = links * chip.ici.link_gb_per_s * 1e9 if chip.ici else UNKNOWN_BYTES_PER_S
    for kernel, is_gather, took_s in zip(program.kernels, gathers, np.diff(begins_s(program, chip)), strict=True):
        whole = sum(program.graph.values[value].num_bytes for value in kernel.writes)
        yield whole / bytes_per_s if is_gather else float(took_s)


class _BottomUp:
    """The kernels placed so far, the last first, and those that may come next, first that with the least numbers."""

    def __init__(self, flow: Flow, gathers: list[bool], takes_s: list[float]) -> None:
        self.takes_s = takes_s
        self.is_gather = gathers
        self.makers = [list(dict.fromkeys([flow.maker[value] for value in values])) for values in flow.operands]
        self.depths_s = self._depths_s()
        self.unplaced = [len(each) for each in users(flow)]
        self.placed: list[int] = []
        self.ready: list[tuple[float, int]] = []
        self.awaited: list[tuple[float, int]] = []
        self.now_s = 0.0

    def _depths_s(self) -> list[float]:
        """The longest chain of gathers up to each kernel, with its own."""
        depths = list[float]()
        for kernel, makers in enumerate(self.makers):
            before = max([depths[maker] for maker in makers], default=0.0)
            depths.append(before + (self.takes_s[kernel] if self.is_gather[kernel] else 0.0))
        return depths

    def run(self) -> list[int]:
        """The order."""
        for kernel, count in enumerate(self.unplaced):
            if not count:
                self._let(kernel)
        while self.ready or self.awaited:
            if self.awaited:
                self._hide(heapq.heappop(self.awaited))
            else:
                self._place(-heapq.heappop(self.ready)[1])
        return self.placed[::-1]

    def _hide(self, gather: tuple[float, int]) -> None:
        """Places what stands beside a gather, and then its begin."""
        kernel = -gather[1]
        due_s = self.now_s + self.takes_s[kernel]
        while self.ready and (self.now_s < due_s or (not self.awaited and self.ready[0] < gather)):
            self._place(-heapq.heappop(self.ready)[1])
        self.now_s = max(self.now_s, due_s)
        self._place(kernel)

    def _place(self, kernel: int) -> None:
        self.placed.append(kernel)
        if not self.is_gather[kernel]:
            self.now_s += self.takes_s[kernel]
        for maker in self.makers[kernel]:
            self.unplaced[maker] -= 1
            if not self.unplaced[maker]:
                self._let(maker)

    def _let(self, kernel: int) -> None:
        queue = self.awaited if self.is_gather[kernel] else self.ready
        heapq.heappush(queue, (-self.depths_s[kernel], -kernel))
