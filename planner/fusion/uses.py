"""Who makes and who reads each value of a graph."""

from __future__ import annotations

from collections.abc import Sequence

from ...dsl.records import record
from ..graph import Graph
from .nature import CONVERT


@record(frozen=True, slots=True)
class Uses:
    """``makers`` has the number of the operation that makes each value, ``readers`` each value's readers.

    A reader is the number of an operation and the position at which it reads. ``after`` has only their numbers, each
    once. ``conversions`` are the operations that only change a dtype.
    """

    makers: dict[int, int]
    readers: Sequence[Sequence[tuple[int, int]]]
    after: Sequence[Sequence[int]]
    results: frozenset[int]
    conversions: frozenset[int]

    def next_ops(self, value: int) -> Sequence[int]:
        """The operations that read a value, each once."""
        return self.after[value]


def read_uses(graph: Graph) -> Uses:
    """The uses of every value of a graph, its loops' bodies apart."""
    readers: list[list[tuple[int, int]]] = [[] for _ in graph.values]
    after: list[list[int]] = [[] for _ in graph.values]
    makers: dict[int, int] = {}
    for number, op in enumerate(graph.ops):
        operands = op.operands
        if len(operands) == 1:
            readers[operands[0]].append((number, 0))
            after[operands[0]].append(number)
        else:
            for position, value in enumerate(operands):
                readers[value].append((number, position))
                if not position or value not in operands[:position]:
                    after[value].append(number)
        for value in op.results:
            makers[value] = number
    conversions = frozenset([number for number, op in enumerate(graph.ops) if op.kind == CONVERT])
    return Uses(makers, readers, after, frozenset(graph.results), conversions)
