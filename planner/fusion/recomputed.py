"""Softmaxes that a backward pass computes again, as remat policies have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..graph import Graph, Op
from .nature import ELEMENTWISE, PRODUCTS, VIEWS
from .uses import Uses

OF_BACKWARD = 3
"""The products of a backward pass at least: of the values' gradient, and of the queries' and the keys'."""


REMATTED = "rematted_computation"


def is_rematted(op: Op) -> bool:
    """Whether a remat policy has an operation computed again: JAX's name stack says so."""
    return REMATTED in (op.origin.scope or "")


def recomputed(graph: Graph, uses: Uses, exponentials: Iterable[int]) -> frozenset[int]:
    """Which of these operations make exponentials for products none of which needs what another makes.

    Where a forward pass keeps them, its own product comes before all of the backward pass; where that computes them
    again, its products stand side by side.
    """
    wanted = {number: frozenset(_products(graph, uses, number)) for number in exponentials}
    wanted = {number: found for number, found in wanted.items() if len(found) >= OF_BACKWARD}
    bits = {product: 1 << bit for bit, product in enumerate(sorted(set().union(*wanted.values())))}
    above = dict(_above(graph, bits)) if bits else {}
    masks = {number: sum(bits[product] for product in found) for number, found in wanted.items()}
    return frozenset(n for n, found in wanted.items() if not any(above[product] & masks[n] for product in found))


def _products(graph: Graph, uses: Uses, number: int) -> Iterator[int]:
    """The products that read what is computed number by number of an operation's result."""
    waiting, seen = [number], {number}
    while waiting:
        for reader in uses.next_ops(graph.ops[waiting.pop()].results[0]):
            if reader in seen:
                continue
            seen.add(reader)
            op = graph.ops[reader]
            if op.kind in PRODUCTS:
                yield reader
            elif op.kind in ELEMENTWISE | VIEWS:
                waiting.append(reader)


def _above(graph: Graph, bits: dict[int, int]) -> Iterator[tuple[int, int]]:
    """Of each of these operations the bits of those that it needs, directly or not."""
    needed: dict[int, int] = {}
    first, last = min(bits), max(bits)
    for number in range(first, last + 1):
        op, mask = graph.ops[number], 0
        for value in op.operands:
            if value in needed:
                mask |= needed[value]
        if number in bits:
            yield number, mask
            mask |= bits[number]
        if mask:
            for value in op.results:
                needed[value] = mask
