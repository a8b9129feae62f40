"""Which operations are done before others in whatever order, as bits of a number, and what lasts through which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from ...fusion.nature import VIEWS
from ...graph import Graph


def left(graph: Graph, makers: Mapping[int, int]) -> frozenset[int]:
    """What results are, and what they are views of: gathered for a product, it may lie where a result will."""
    found, waiting = set[int](), list(graph.results)
    while waiting:
        value = waiting.pop()
        if value not in found:
            found.add(value)
            op = graph.ops[makers[value]] if value in makers else None
            waiting += op.operands if op is not None and op.kind in VIEWS else ()
    return frozenset(found)


def before(graph: Graph, makers: Mapping[int, int]) -> list[int]:
    """The operations that each operation needs, itself too, as bits."""
    found: list[int] = []
    for number, op in enumerate(graph.ops):
        own = 1 << number
        for operand in op.operands:
            if operand in makers:
                own |= found[makers[operand]]
        found.append(own)
    return found


def behind(graph: Graph, makers: Mapping[int, int]) -> list[int]:
    """The operations that need each operation, itself too, as bits."""
    found = [1 << number for number in range(len(graph.ops))]
    for number in reversed(range(len(graph.ops))):
        for maker in {makers[operand] for operand in graph.ops[number].operands if operand in makers}:
            found[maker] |= found[number]
    return found


def most_bytes(lasting: Iterable[tuple[int, int]], among: int, count: int) -> NDArray[np.int64]:
    """The most bytes that last through each operation ``among`` some; ``lasting`` are bytes, and theirs."""
    found = np.zeros(count, np.int64)
    for num_bytes, operations in lasting:
        found = np.maximum(found, num_bytes * bits(among & operations, count))
    return found


def bits(number: int, count: int) -> NDArray[np.bool_]:
    """Which of so many operations a number has the bits of."""
    raw = np.frombuffer(number.to_bytes(count // 8 + 1, "little"), np.uint8)
    return np.unpackbits(raw, bitorder="little")[:count].astype(bool)
