"""What several operations read of a product and bring together again: all of it is computed with the product.

The gradient of an activation multiplies what comes back by several things and adds that up (SiLU, GELU). Its sum is
written instead of the product, once for all that read it (seen on v3, v5e and v6e).
"""

from __future__ import annotations

import heapq
from typing import NamedTuple

from ..graph import Graph, Op
from .nature import ELEMENTWISE
from .uses import Uses

MOST = 64
"""The operations between a product and where its ways meet again that are looked through."""


class Rejoined(NamedTuple):
    """The operation in which all ways from another end, and those on them."""

    end: int
    ways: frozenset[int]


def rejoined(graph: Graph, uses: Uses, start: int) -> Rejoined | None:
    """Where the ways from an operation meet again, all of them number by number, if they do."""
    value = graph.ops[start].results[0]
    if len(graph.ops[start].results) > 1 or len(uses.next_ops(value)) < 2 or value in uses.results:
        return None
    size, bits = graph.values[value].num_elements, graph.values[value].bits
    waiting, ways = sorted(set(uses.next_ops(value))), set[int]()
    while len(waiting) > 1:
        number = heapq.heappop(waiting)
        op = graph.ops[number]
        if len(ways) == MOST or not _goes_on(graph, uses, op, size):
            return None
        ways.add(number)
        for reader in uses.next_ops(op.results[0]):
            if reader not in waiting:
                heapq.heappush(waiting, reader)
    (end,) = waiting
    ends = graph.ops[end].kind in ELEMENTWISE and graph.values[graph.ops[end].results[0]].num_elements == size
    return Rejoined(end, frozenset(ways)) if ends and graph.values[graph.ops[end].results[0]].bits <= bits else None


def _goes_on(graph: Graph, uses: Uses, op: Op, size: int) -> bool:
    """Whether an operation works number by number on arrays of this size, and others read what it makes."""
    made = op.results[0]
    is_alike = op.kind in ELEMENTWISE and graph.values[made].num_elements == size
    return is_alike and made not in uses.results and bool(uses.next_ops(made))
