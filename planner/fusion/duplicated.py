"""What several kernels read: computed in passing by each of them, or written once.

XLA forbids copies of an operation of several arrays that something cannot compute in passing on every way
(``InstructionFusion::ComputeGloballyUnfusible``): what is added to a sum over devices of what is made of it, or met by
a number of each of its rows, is written. Of the rest the TPU compiler computes in passing first what saves most bytes
so: what n kernels read, W bytes made of S, moves n S if each computes it, and S + W + n W if it is written (probed on
v3, v5e and v6e: sums of two to four arrays for products, sums and others, and sums of those). What saves nothing is
computed in passing.
"""

from __future__ import annotations

from collections.abc import Collection

from ..graph import Graph, Op
from .nature import BROADCAST, CONSTANT, ELEMENTWISE, PRODUCTS, VIEWS, is_constant, widens
from .uses import Uses

_ONE_READER = ELEMENTWISE | VIEWS
_SPREAD = frozenset({BROADCAST, CONSTANT, "iota"})
_WORD_BYTES, _WORD_BITS = 4, 32


def not_on_all_ways(graph: Graph, uses: Uses, written: Collection[int]) -> set[int]:
    """The numbers of operations of several arrays that a reader cannot compute in passing on all ways that lead from
    them to it, since something on one is ``written``.
    """
    may = [number for number, op in enumerate(graph.ops) if number not in written and _is_copied(graph, uses, op)]
    bits = {number: 1 << place for place, number in enumerate(may)}
    barred = [0] * len(graph.ops)
    reach = [0] * len(graph.ops)
    found, alone = 0, _read_once(graph, uses, written)
    for number, op in enumerate(graph.ops):
        makers = [uses.makers[value] for value in dict.fromkeys(op.operands) if value in uses.makers]
        for _ in range(2):  # what is found of one operand holds for the others
            here = 0
            for maker in makers:
                is_passed = maker not in written or maker in alone
                here |= barred[maker] if is_passed and not bits.get(maker, 0) & found else reach[maker]
            mine = sum(bits.get(maker, 0) for maker in makers)
            if not here & mine & ~found:
                break
            found |= here & mine
        reached = bits.get(number, 0)
        for maker in makers:
            reached |= reach[maker]
        reach[number], barred[number] = reached, here & ~bits.get(number, 0)
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
    full = [len(values[v].shape) >= rank for v, kind in zip(operands, makers, strict=True) if kind not in _SPREAD]
    return sum(full) > 1 and sum(values[v].num_bytes for v in operands) > values[op.results[0]].num_bytes


def _read_once(graph: Graph, uses: Uses, written: Collection[int]) -> set[int]:
    """Products that one operation reads, which is computed with them."""
    found = set[int]()
    for number in written:
        op = graph.ops[number]
        if op.kind in PRODUCTS and op.results[0] not in uses.results:
            readers = uses.readers[op.results[0]]
            if len(readers) == 1 and graph.ops[readers[0][0]].kind in _ONE_READER:
                found.add(number)
    return found


def dearer_in_passing(graph: Graph, uses: Uses, written: Collection[int]) -> set[int]:
    """The numbers of the operations that are written since that moves fewer bytes, beside those that are anyway."""
    return _Queue(graph, uses, written).run()


class _Queue:
    """Operations that may be computed in passing, by what that saves."""

    def __init__(self, graph: Graph, uses: Uses, written: Collection[int]) -> None:
        self.graph, self.uses = graph, uses
        self.makers = uses.makers
        ops = enumerate(graph.ops)
        passing = [n for n, op in ops if n not in written and op.kind != CONSTANT and len(op.results) == 1]
        self.may = set(passing)
        self.done = {n for n in passing if graph.ops[n].kind not in ELEMENTWISE or widens(graph, graph.ops[n])}
        self.bytes = [
            _WORD_BYTES * v.num_elements if v.bits >= _WORD_BITS else v.bits * v.num_elements / 8 for v in graph.values
        ]

    def readers(self, number: int) -> set[int]:
        """The kernels that read what an operation makes: those of what computes it in passing."""
        seen, waiting = set[int](), list(self.uses.after[self.graph.ops[number].results[0]])
        while waiting:
            here = waiting.pop()
            if here not in seen:
                seen.add(here)
                if here in self.done:
                    waiting += self.uses.after[self.graph.ops[here].results[0]]
        return seen - self.done

    def sources(self, number: int) -> dict[int, float]:
        """What is read where an operation is computed."""
        found: dict[int, float] = {}
        size = self.graph.values[self.graph.ops[number].results[0]].num_elements
        waiting, seen = list(self.graph.ops[number].operands), set[int]()
        while waiting:
            value = waiting.pop()
            if value in seen:
                continue
            seen.add(value)
            maker = self.makers.get(value)
            if maker is not None and is_constant(self.graph.ops[maker]):
                continue
            if maker is not None and maker in self.done:
                waiting += self.graph.ops[maker].operands
            elif 2 * self.graph.values[value].num_elements >= size:
                found[value] = self.bytes[value]
        return found

    def saved(self, number: int) -> float:
        """The bytes that computing it in passing saves."""
        n = len(self.readers(number))
        read, own = sum(self.sources(number).values()), self.bytes[self.graph.ops[number].results[0]]
        return read + own * (1 + n) - n * read

    def run(self) -> set[int]:
        """What is written."""
        graph = self.graph
        for n in self.may - self.done:
            if len(self.uses.after[graph.ops[n].results[0]]) < 2:
                self.done.add(n)
        left = sorted(self.may - self.done)
        saved = {n: self.saved(n) for n in left}
        while saved:
            best = max(saved, key=lambda n: (saved[n], n))
            if saved[best] < 0:
                return set(saved)
            self.done.add(best)
            del saved[best]
            for n in saved:
                saved[n] = self.saved(n)
        return set()
