"""What several kernels read: computed in passing by each of them, or written once.

XLA forbids copies of an operation of several arrays that something cannot compute in passing on every way
(``InstructionFusion::ComputeGloballyUnfusible``): what is added to a sum over devices of what is made of it, or met by
a number of each of its rows, is written. Of the rest the TPU compiler computes in passing first what saves most bytes
so: what n kernels read, W bytes made of S, moves n S if each computes it, and S + W + n W if it is written (probed on
v3, v5e and v6e: sums of two to four arrays for products, sums and others, and sums of those). What saves nothing is
computed in passing.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

from ..graph import Graph, Op
from .nature import ELEMENTWISE, PRODUCTS, REDUCE, SPREAD, STEPWISE, VIEWS, is_constant, widens
from .uses import Uses

_WORD_BYTES, _WORD_BITS = 4, 32


def not_on_all_ways(graph: Graph, uses: Uses, written: Collection[int]) -> set[int]:
    """The numbers of operations of several arrays that a reader cannot compute in passing on all ways that lead from
    them to it, since something on one is ``written``.
    """
    may = [number for number, op in enumerate(graph.ops) if number not in written and _is_copied(graph, uses, op)]
    if not may:
        return set()
    bits = {number: 1 << place for place, number in enumerate(may)}
    reach, barred, ends = [0] * len(graph.ops), [0] * len(graph.ops), _ends(graph, uses, written)
    found = 0
    for number in range(may[0], len(graph.ops)):
        here = reached = direct = 0
        for value in graph.ops[number].operands:
            maker = uses.makers.get(value, -1)
            if maker >= 0 and reach[maker]:
                own = bits.get(maker, 0)
                reached |= reach[maker]
                direct |= own
                here |= reach[maker] if maker in ends or own & found else barred[maker]
        found |= here & direct
        own = bits.get(number, 0)
        reach[number], barred[number] = reached | own, here
    return {number for number, bit in bits.items() if bit & found and _is_of_memory(graph, uses, number, written)}


def _is_of_memory(graph: Graph, uses: Uses, number: int, written: Collection[int]) -> bool:
    """Whether an operation computes nothing in passing: what does is another one to XLA by then, and not forbidden."""
    for value in graph.ops[number].operands:
        maker = uses.makers.get(value)
        while maker is not None and graph.ops[maker].kind in VIEWS:
            maker = uses.makers.get(graph.ops[maker].operands[0])
        if maker is not None and maker not in written:
            return False
    return True


def _is_copied(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether copies of an elementwise operation would read more bytes than what it makes."""
    if op.kind not in ELEMENTWISE or len(uses.after[op.results[0]]) < 2:
        return False
    values, rank = graph.values, len(graph.shape(op.results[0]))
    operands = dict.fromkeys(op.operands)
    makers = [graph.ops[uses.makers[value]].kind if value in uses.makers else "" for value in operands]
    full = [len(values[v].shape) >= rank for v, kind in zip(operands, makers, strict=True) if kind not in SPREAD]
    return sum(full) > 1 and sum(values[v].num_bytes for v in operands) > values[op.results[0]].num_bytes


def _ends(graph: Graph, uses: Uses, written: Collection[int]) -> set[int]:
    """Operations that nothing computes in passing: what is written, but for products that one operation reads, which is
    computed with them.
    """
    found = set(written)
    for number in written:
        op = graph.ops[number]
        if op.kind in PRODUCTS and op.results[0] not in uses.results:
            readers = uses.readers[op.results[0]]
            if len(readers) == 1 and graph.ops[readers[0][0]].kind in STEPWISE:
                found.remove(number)
    return found


def dearer_in_passing(
    graph: Graph, uses: Uses, written: Collection[int], sources: Mapping[int, Collection[int]]
) -> set[int]:
    """The numbers of the operations that are written since that moves fewer bytes, beside those that are anyway.
    ``sources`` has the arrays in memory that a value is made of at most, for what may be computed in passing.
    """
    sizes = _Sizes(graph)
    makers = uses.makers
    may = {}
    for value, read in sources.items():
        number = makers[value]
        if number not in written and graph.ops[number].kind in ELEMENTWISE:
            is_shared = _is_shared(graph, uses, value) and not widens(graph, graph.ops[number])
            if is_shared and sum(map(sizes.of, read)) > sizes.of(value):
                may[number] = value
    return _Queue(graph, uses, written, may, sizes).run() if may else set()


def _is_shared(graph: Graph, uses: Uses, value: int) -> bool:
    """Whether several operations read a value, be it made wider: the compiler makes masks numbers where they are
    multiplied.
    """
    after = uses.after[value]
    if len(after) == 1 and widens(graph, graph.ops[after[0]]):
        after = uses.after[graph.ops[after[0]].results[0]]
    return len(after) > 1


class _Sizes:
    """Bytes of values as they are moved: a number has a word at most."""

    def __init__(self, graph: Graph) -> None:
        self._values = graph.values

    def of(self, value: int) -> float:
        """Of one value."""
        known = self._values[value]
        return known.num_elements * (_WORD_BYTES if known.bits >= _WORD_BITS else known.bits / 8)


class _Queue:
    """Operations of several arrays that may be computed in passing, by what that saves: ``left`` are those that nothing
    is decided of, each with the value that it makes. All others that are not written are.
    """

    def __init__(
        self, graph: Graph, uses: Uses, written: Collection[int], left: Mapping[int, int], sizes: _Sizes
    ) -> None:
        self._graph, self._uses, self._written, self._sizes = graph, uses, written, sizes
        self._left = dict(left)

    def run(self) -> set[int]:
        """What is written."""
        read, reading = {}, {}
        queue: list[tuple[float, int]] = []

        def look(number: int) -> None:
            read[number], reading[number] = self._sources(number), self._readers(number)
            n, own = self._count(reading[number]), self._sizes.of(self._left[number])
            saved = own * (1 + n) - (n - 1) * sum(map(self._sizes.of, read[number]))
            heapq.heappush(queue, (-saved, -number))
            latest[number] = saved

        latest: dict[int, float] = {}
        for number in self._left:
            look(number)
        while queue:
            saved, number = -queue[0][0], -heapq.heappop(queue)[1]
            if number not in self._left or latest[number] != saved:
                continue
            if saved < 0:
                return set(self._left)
            value = self._left.pop(number)
            for other in self._left:
                if number in reading[other] or value in read[other]:
                    look(other)
        return set()

    def _readers(self, number: int) -> set[int]:
        """The kernels that read what an operation makes: those of what computes it in passing."""
        graph, after = self._graph, self._uses.after
        found, seen, waiting = set[int](), set[int](), list(after[self._left[number]])
        while waiting:
            here = waiting.pop()
            if here in seen:
                continue
            seen.add(here)
            if here in self._written or here in self._left:
                found.add(here)
            else:
                waiting += (reader for value in graph.ops[here].results for reader in after[value])
        return found

    def _count(self, readers: set[int]) -> int:
        """How many kernels readers are: what several sums go through is read once for all of them."""
        ops = [self._graph.ops[number] for number in readers]
        summed = {self._graph.shape(op.operands[0]) for op in ops if op.kind == REDUCE}
        return sum(op.kind != REDUCE for op in ops) + len(summed)

    def _sources(self, number: int) -> set[int]:
        """What is read where an operation is computed: arrays of half its size or more."""
        graph, makers = self._graph, self._uses.makers
        found, seen, waiting = set[int](), set[int](), list(graph.ops[number].operands)
        least = graph.values[self._left[number]].num_elements / 2
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            maker = makers.get(value, -1)
            if maker < 0 or maker in self._written or maker in self._left:
                if graph.values[value].num_elements >= least:
                    found.add(value)
            elif not is_constant(graph.ops[maker]):
                waiting += graph.ops[maker].operands
        return found
