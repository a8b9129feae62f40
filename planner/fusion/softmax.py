"""Softmax of which nothing but its product is left: forward passes whose backward pass computes them again.

The TPU compiler then finds the maximum of each row where it subtracts it, as a window over the row, and writes the
exponentials instead of the scores: in float32, with their sum, out of the kernel of the product that makes the scores.
Where less memory is near, the scores are written too, as wide, and the exponentials made from those.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ..graph import Graph, Op
from .nature import BROADCAST, ELEMENTWISE, PRODUCTS, REDUCE, VIEWS
from .operands import batch_dims
from .uses import Uses

SPREADING = VIEWS | {BROADCAST}


class Softmax(NamedTuple):
    """The operations that make the scores, the maximum of each row and the exponentials."""

    scores: int
    maximum: int
    exponentials: int


def softmaxes(graph: Graph, uses: Uses) -> Iterator[Softmax]:
    """Each such softmax of a batch over two dims or more."""
    for number, op in enumerate(graph.ops):
        rows = _rows(graph, uses, op) if op.kind == "exponential" else None
        if rows is not None and _is_for_one_product(graph, uses, op):
            yield Softmax(*rows, number)


def behind(graph: Graph, uses: Uses, number: int, written: set[int]) -> int | None:
    """What is written, and read by nothing else, that an operation's result is made of number by number."""
    size = graph.values[graph.ops[number].results[0]].num_elements
    while True:
        near = [uses.makers[v] for v in graph.ops[number].operands if v in uses.makers]
        wide = [
            n
            for n in near
            if graph.ops[n].kind in ELEMENTWISE | VIEWS | PRODUCTS
            and graph.values[graph.ops[n].results[0]].num_elements == size
        ]
        if len(wide) != 1 or len(uses.next_ops(graph.ops[wide[0]].results[0])) != 1:
            return None
        (number,) = wide
        if number in written:
            return number


def _rows(graph: Graph, uses: Uses, op: Op) -> tuple[int, int] | None:
    """What makes the rows of which an exponential takes the maximum away, and that, if nothing else reads the two."""
    shift = uses.makers.get(op.operands[0])
    if shift is None or graph.ops[shift].kind != "subtract" or not _is_read_once(graph, uses, shift):
        return None
    value, most = graph.ops[shift].operands
    above = uses.makers.get(most)
    while above is not None and graph.ops[above].kind in SPREADING and _is_read_once(graph, uses, above):
        above = uses.makers.get(graph.ops[above].operands[0])
    if above is None or graph.ops[above].kind != REDUCE or graph.ops[above].operands[0] != value:
        return None
    scores = uses.makers.get(value)
    alone = _is_read_once(graph, uses, above) and len(uses.next_ops(value)) == 2
    return (scores, above) if alone and scores is not None else None


def _is_for_one_product(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether exponentials are only summed and divided, and what that makes is read by one product."""
    readers = [graph.ops[n] for n in uses.next_ops(op.results[0])]
    if sorted(reader.kind for reader in readers) != ["divide", REDUCE]:
        return False
    last = next(reader for reader in readers if reader.kind == "divide")
    while len(after := uses.next_ops(last.results[0])) == 1 and graph.ops[after[0]].kind in VIEWS | {"convert"}:
        last = graph.ops[after[0]]
    return len(after) == 1 and graph.ops[after[0]].kind in PRODUCTS and batch_dims(graph, graph.ops[after[0]]) > 1


def _is_read_once(graph: Graph, uses: Uses, number: int) -> bool:
    return len(uses.next_ops(graph.ops[number].results[0])) == 1
