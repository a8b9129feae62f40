"""The copies around sorts, and the places that are sorted beside numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...fusion.nature import PRODUCTS
from ...kernels import Program
from ...ranked import SORT, TOP_K, is_ranked, placed_beside, turned
from ..flow.flow import Flow
from ..tensors.tiles import padded_bytes

Span = tuple[int, int]


class Beside(NamedTuple):
    """What lies beside a sort at ``point``: as many bytes as of ``value``, or of its places; in fast memory if it
    ``may_stay``. What is not ``is_beside`` is a result that nobody reads.
    It stays until ``last``.
    """

    value: int
    point: int
    num_bytes: int
    may_stay: bool
    is_beside: bool = True
    last: int = -1

    @property
    def span(self) -> Span:
        """From when to when it lies there."""
        return self.point, max(self.point, self.last)


def ranked_copies(program: Program, flow: Flow) -> Iterator[Beside]:
    """What a whole program's sorts take beside what they read and make (seen on v3, v5e and v6e).

    What is turned is a copy, in whose place the sort then writes; the sorted places, of no use to anybody, are not left
    in fast memory (v5e: 32 MiB for the median of ``f32[1024,8192]``), and neither is what else nobody reads.
    """
    graph = program.graph
    kinds = graph.kinds
    if SORT not in kinds and TOP_K not in kinds:
        return
    multiplied = {value for op in graph.of_kind(*PRODUCTS) for value in op.results}
    read = {value for op in graph.ops for value in op.operands}.union(graph.results)
    for point, kernel in enumerate(program.kernels):
        op = graph.ops[kernel.ops[-1]]
        if op.kind not in (SORT, TOP_K):
            continue
        few = op.kind == TOP_K and is_ranked(op, graph.values[op.operands[0]])
        for value in op.operands if turned(graph, op) else ():
            if value not in multiplied and value in graph.arguments:
                yield Beside(value, point, padded_bytes(graph.values[value]), may_stay=True)
        places = None if few else placed_beside(graph, op)
        if places is not None:
            yield Beside(op.operands[0], point, padded_bytes(places), may_stay=op.kind == TOP_K)
        for value in op.results if op.kind == SORT else ():
            if value not in read and value not in flow.held:
                yield Beside(value, point, padded_bytes(graph.values[value]), may_stay=False, is_beside=False)
