"""What is computed of an all-to-all's pieces as they come: it is written before it is seen as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import Graph, Op
from ..kinds import ALL_TO_ALL
from .nature import BROADCAST, CONSTANT, ELEMENTWISE, PRODUCTS, VIEWS, is_scalar
from .uses import Uses

COMPARE = "compare"
"""Masks are made by themselves: orders put them off until they are read."""


def in_pieces(graph: Graph, uses: Uses) -> set[int]:
    """The last operations computed number by number in the shape of pieces, which products see as a whole.

    What an all-to-all brings is put together by a reshape, which the compiler moves behind what is computed of it
    (``ReshapeMover``) as long as all that reads it computes number by number of it alone: an activation, its mask. A
    product computes nothing in passing that lies before a reshape.
    """
    pieces = {value for op in graph.ops if op.kind == ALL_TO_ALL for value in op.results}
    found = set[int]()
    while moved := _moved(graph, uses, pieces):
        pieces = {value for number in moved for value in graph.ops[number].results}
        found |= moved
    return {number for number in found if _meets_product(graph, uses, graph.ops[number].results[0])}


def _moved(graph: Graph, uses: Uses, pieces: set[int]) -> set[int]:
    """The operations behind which the reshapes of ``pieces`` move at once: all that reads each of them, or none."""
    spread = {number for value in pieces for number in uses.next_ops(value)}
    able = {number for number in spread if _is_of(graph, uses, graph.ops[number], pieces)}
    while stuck := {v for n in able for v in graph.ops[n].operands if v in pieces and not _all_read(uses, v, able)}:
        able -= {number for value in stuck for number in uses.next_ops(value)}
    return able


def _is_of(graph: Graph, uses: Uses, op: Op, pieces: set[int]) -> bool:
    """Whether it is computed number by number of pieces and single numbers."""
    return op.kind in ELEMENTWISE and all(value in pieces or _is_single(graph, uses, value) for value in op.operands)


def _is_single(graph: Graph, uses: Uses, value: int) -> bool:
    maker = uses.makers.get(value)
    if maker is None:
        return graph.values[value].num_elements == 1
    op = graph.ops[maker]
    spreads = op.kind == BROADCAST and _is_single(graph, uses, op.operands[0])
    return spreads or op.kind == CONSTANT or is_scalar(graph, op)


def _all_read(uses: Uses, value: int, able: set[int]) -> bool:
    return value not in uses.results and able.issuperset(uses.next_ops(value))


def _meets_product(graph: Graph, uses: Uses, value: int) -> bool:
    """Whether a product reads a value, or what is computed of a product's result where that is written."""
    return any(_is_product(graph, uses, reader) for reader in _beyond_views(graph, uses, value))


def _is_product(graph: Graph, uses: Uses, op: Op) -> bool:
    if op.kind in PRODUCTS:
        return True
    makers = (uses.makers.get(value) for value in op.operands)
    return op.kind in ELEMENTWISE and any(m is not None and graph.ops[m].kind in PRODUCTS for m in makers)


def _beyond_views(graph: Graph, uses: Uses, value: int) -> Iterator[Op]:
    for number in uses.next_ops(value):
        op = graph.ops[number]
        if op.kind in VIEWS:
            yield from _beyond_views(graph, uses, op.results[0])
        else:
            yield op
