"""Lookups of whole rows of a table, and what is added to these: what of them the compiler wants row by row."""

from __future__ import annotations

import math

from .graph import Graph, Op, Value

GATHER, SCATTER = "gather", "scatter"
LOOK_UP = frozenset({GATHER, SCATTER})
FILL = "broadcast_in_dim"
LANES, ROWS = 128, 8

FEW_ROWS = 0.03
"""The share of a table's rows with which a scatter is taken to fill the table itself on v6e: it does with 6 %."""

FILLED_A_ROW_BYTES = 17_500
"""Of a table, for each row that is added to it: a scatter fills up to so much itself (v3, v4, v5e, v5p). Of 32000 rows
of 2 KiB it does for 4096 and not for 3500, of rows of 4 KiB for 7900 and not for 6000; rows count with the lanes that
they leave empty.
"""

FILLED_NUMBERS = 2**22
"""Below so many numbers, of two bytes or of four, it fills a table for any row at all (v4, v5e)."""


FEWEST_LOOKED_UP, FEWEST_ROWS = 1025, 4097
"""What a SparseCore is given: 1024 rows, or 8192 of a table of 4096, are looked up by the other cores (v5p, v6e)."""


def looks_up_rows(graph: Graph, op: Op) -> bool:
    """Whether a gather takes rows of a table, or parts of several numbers of them, or a scatter adds to such: those are
    found by the table's first dims.
    """
    table, said = graph.shape(op.operands[0]), op.attributes
    found_by = said.get("collapsed_slice_dims" if op.kind == GATHER else "inserted_window_dims", ())
    batch = said.get("operand_batching_dims", ()) or said.get("input_batching_dims", ())
    if batch or not found_by or tuple(found_by) != tuple(range(len(found_by))) or len(found_by) == len(table):
        return False
    return op.kind == SCATTER or said.get("slice_sizes", table)[-1] > 1 or table[-1] == 1


def is_looked_up_apart(graph: Graph, gather: Op) -> bool:
    """Whether SparseCores look up what a gather does, where a chip gives them any (``Chip.offloads_gathers``)."""
    row = max(1, math.prod(gather.attributes.get("slice_sizes", ())))
    rows, count = (graph.values[v].num_elements // row for v in (gather.operands[0], gather.results[0]))
    return bool(rows >= FEWEST_ROWS and count >= FEWEST_LOOKED_UP)


def tables_of(op: Op) -> tuple[int, ...]:
    """What a lookup finds rows in: one array of a gather, of a scatter as many as it gives back."""
    return op.operands[: len(op.results)] if op.kind == SCATTER else op.operands[:1]


def added_by(op: Op) -> tuple[int, ...]:
    """What a scatter adds to its tables, one array for each; a gather adds nothing."""
    return op.operands[len(op.results) + 1 :] if op.kind == SCATTER else ()


def row_tiles(value: Value) -> int:
    """The registers that a value fills that lies row by row: its last dim on the lanes, the one before on the rows.

    Dims of one number count for nothing.
    """
    large = [size for size in value.shape if size != 1]
    if len(large) < 2:
        return -(-math.prod(large) // (ROWS * LANES))
    *more, rows, lanes = large
    return math.prod(more) * -(-rows // ROWS) * -(-lanes // LANES)


def filled(graph: Graph, *, is_wide: bool | None = None) -> frozenset[int]:
    """The values of one number everywhere that are nothing but what scatters add rows to: the scatter fills them.

    So it is where that ``takes_many``; otherwise it is written first. ``is_wide`` says whether the matrix unit is
    v6e's; without, all that scatters may fill are, be their tables as large as they may.
    """
    scatters = graph.of_kind(SCATTER)
    if not scatters:
        return frozenset()
    made = {op.results[0] for op in graph.of_kind(FILL) if graph.values[op.operands[0]].num_elements == 1}
    begun = {v for op in scatters if _adds_rows(graph, op) and _fills(graph, op, is_wide) for v in tables_of(op)}
    others = {v for op in graph.ops for v in op.operands[_num_tables(op) :]}.union(graph.results)
    few = {v for op in scatters for v in tables_of(op)} - begun
    return frozenset(made & begun - others - few)


def _adds_rows(graph: Graph, op: Op) -> bool:
    """Whether a scatter adds whole rows to a table of two dims, or to such stacked."""
    said, dims = op.attributes, len(graph.shape(op.operands[0]))
    stacks = tuple(said.get("input_batching_dims", ()))
    found_by = tuple(sorted((*stacks, *said.get("inserted_window_dims", ()))))
    return found_by == tuple(range(len(found_by))) and dims == 2 + len(stacks) == 1 + len(found_by)


def _fills(graph: Graph, op: Op, is_wide: bool | None) -> bool:
    table, added = (graph.values[values[0]] for values in (tables_of(op), added_by(op)))
    return is_wide is None or takes_many(table, added, is_wide=is_wide)


def takes_many(table: Value, added: Value, *, is_wide: bool) -> bool:
    """Whether many rows are added for a table's size, or that is small; ``is_wide`` says whether the matrix unit is
    v6e's.
    """
    if is_wide:
        return added.num_elements >= FEW_ROWS * table.num_elements
    rows, numbers = added.num_elements // max(1, table.shape[-1]), row_tiles(table) * ROWS * LANES
    num_bytes = numbers * table.num_bytes // max(1, table.num_elements)
    return numbers < FILLED_NUMBERS or num_bytes <= FILLED_A_ROW_BYTES * rows


def _num_tables(op: Op) -> int:
    return len(op.results) if op.kind == SCATTER else 0
