"""What only products read: written for them, or computed in passing by each."""

from __future__ import annotations

import math
from collections import deque

from ..graph import Graph, Op
from .narrow import NARROW, WIDE, is_default_precision
from .nature import BROADCAST, ELEMENTWISE, LANES, PRODUCTS, VIEWS, batch_dims, widens
from .uses import Uses

MANY_PRODUCTS = 2
MATRIX_RANK = 2
STEPS_BACK = 8
_MULTIPLYING = PRODUCTS | VIEWS


def is_only_multiplied(graph: Graph, uses: Uses, value: int, keeps_near: bool, *, apart: bool = False) -> bool:
    """Whether only products read it, each rounding it; batches over a single dim compute it in passing all the same,
    but for what softmax makes of each of its rows.

    So do batches over more dims if they are narrower than a register's lanes, and all but batches what is rounded
    already, which reads no more bytes where it is computed in passing. Chips that keep no arrays near (``keeps_near``)
    write that for narrow batches too, and all do where it is made ``apart``.
    """
    readers, dtype = beyond_views(graph, uses, value), graph.values[value].dtype
    if dtype not in (NARROW, WIDE) or not all(_rounds(reader, dtype) for reader, _ in readers):
        return False
    lanes = 1 if apart or (dtype == NARROW and not keeps_near) else LANES
    for reader, position in readers:
        batch = batch_dims(graph, reader)
        passing = batch == 1 and not _is_of_rows(graph, uses, value)
        if passing or (batch == 0 and dtype == NARROW) or (batch and _columns(graph, reader, position) < lanes):
            return False
    return True


def is_shared_operand(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether batches of products over two dims or more read it, or over one what softmax makes, and as little else.

    Products as wide as a register's lanes compute it in passing if it is for one of them; for two it is written, where
    one product alone reads what one of these makes: attention whose input needs no gradient, as of a first layer on
    data (v3, v4 and v5e; layers on embeddings compute their probabilities again, on v5p too).
    """
    if op.kind not in ELEMENTWISE or widens(graph, op):
        return False
    if any(graph.ops[number].kind not in _MULTIPLYING for number in uses.after[op.results[0]]):
        return False
    readers, dtype = beyond_views(graph, uses, op.results[0]), graph.values[op.results[0]].dtype
    return (
        len(readers) >= MANY_PRODUCTS
        and dtype in (NARROW, WIDE)
        and all(_rounds(reader, dtype) for reader, _ in readers)
        and min(batch_dims(graph, reader) for reader, _ in readers) > (not _is_of_rows(graph, uses, op.results[0]))
        and all(_columns(graph, reader, position) >= LANES for reader, position in readers)
        and any(_is_read_once(graph, uses, reader.results[0]) for reader, _ in readers)
    )


def _is_read_once(graph: Graph, uses: Uses, value: int) -> bool:
    return len(beyond_views(graph, uses, value)) + (value in uses.results) == 1


def _is_of_rows(graph: Graph, uses: Uses, value: int) -> bool:
    """Whether several rows of matrices meet a number of each row as it is computed, as softmax's do their sums.

    Queries of several heads that share their keys are such: a batch over one dim, of four in all.
    """
    waiting, size, seen = deque([(value, STEPS_BACK)]), graph.values[value].num_elements, {value}
    while waiting:
        here, left = waiting.popleft()
        maker = uses.makers.get(here)
        if maker is None or graph.values[here].num_elements != size:
            continue
        op = graph.ops[maker]
        if op.kind == BROADCAST and _is_a_number_a_row(graph, op):
            return True
        if left and op.kind in ELEMENTWISE | VIEWS:
            waiting += [(operand, left - 1) for operand in op.operands if operand not in seen]
            seen.update(op.operands)
    return False


def _is_a_number_a_row(graph: Graph, op: Op) -> bool:
    """Whether an array is spread along one of four dims or more."""
    shape = graph.shape(op.results[0])
    met = {*op.attributes.get("broadcast_dimensions", ())}
    along = [size for dim, size in enumerate(shape) if size > 1 and dim not in met]
    return sum(size > 1 for size in shape) > MATRIX_RANK + 1 and len(along) == 1


def beyond_views(graph: Graph, uses: Uses, value: int) -> list[tuple[Op, int]]:
    """What reads a value, under whatever shape, and as which operand."""
    found = []
    for number, position in uses.readers[value]:
        reader = graph.ops[number]
        found += beyond_views(graph, uses, reader.results[0]) if reader.kind in VIEWS else [(reader, position)]
    return found


def _rounds(reader: Op, dtype: str) -> bool:
    """Whether it is a product that reads a value of this dtype as bfloat16."""
    return reader.kind in PRODUCTS and (dtype == NARROW or is_default_precision(reader))


def _columns(graph: Graph, product: Op, position: int) -> int:
    """The columns of a product that it makes of each row of one operand: what is free of the other."""
    side, other = ("rhs", product.operands[1]) if position == 0 else ("lhs", product.operands[0])
    kept = {d for part in ("contracting", "batching") for d in product.attributes.get(f"{side}_{part}_dimensions", ())}
    return math.prod(size for dim, size in enumerate(graph.shape(other)) if dim not in kept)
