"""What TPU7x's SparseCores do beside its work: sums over devices and gathers, lookups of rows, and what adds to rows.

How long the compiler thinks that each takes, from its scheduler's log (libtpu 0.0.51, tpu7x:2x2x2): bytes at a link's
rate, of a gather those that come from others, over however many dims devices lie.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...graph import Graph
from ...kernels import Kernel
from ...kinds import ALL_GATHER, ALL_REDUCE, COLLECTIVE_PERMUTE, REDUCE_SCATTER
from ...lookups import GATHER, SCATTER, is_looked_up_apart
from ...partition.layout import ways

SENT = frozenset({ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, COLLECTIVE_PERMUTE})

ANY = 1 << 20
MOST_APART = {ALL_GATHER: ANY, ALL_REDUCE: ANY, REDUCE_SCATTER: ANY, COLLECTIVE_PERMUTE: 5, GATHER: ANY, SCATTER: ANY}
"""How many may be under way at a time: its programs have six gathers so."""

WIDEST_ADDED = 1024
"""How wide rows are from which on they are added up by the kernels of the chip itself (libtpu, tpu7x:2x2x1: rows of 768
numbers are not, of 1024 they are, in float32 or bfloat16, of tables of 1024 to 32768 rows; single numbers are not,
rows of several dims are, as 8 x 64).
"""

LOOKED_UP = 341.4
"""Bytes a cycle that are looked up."""

ADDED = 2.667
"""Numbers a cycle that are added to rows, of any width and dtype."""


def done_apart(graph: Graph, kernel: Kernel) -> str | None:
    """What a kernel is that SparseCores do, or a permute."""
    op = graph.ops[kernel.ops[-1]]
    if op.kind == SCATTER:
        found_by = op.attributes.get("inserted_window_dims", (0,))
        row = [size for dim, size in enumerate(graph.shape(op.results[0])) if dim not in found_by]
        return SCATTER if len(row) < 2 and math.prod(row) < WIDEST_ADDED else None
    if len(kernel.ops) > 1:
        return None
    if op.kind == GATHER:
        return GATHER if is_looked_up_apart(graph, op) else None
    return op.kind if op.kind in SENT else None


def apart_s(graph: Graph, kernel: Kernel, mesh: Mapping[str, int], bytes_per_s: float, clock_hz: float) -> float:
    """The seconds from its start to its end; a link sends so many bytes a second."""
    op = graph.ops[kernel.ops[-1]]
    moved = max(sum([graph.values[value].num_bytes for value in those]) for those in (kernel.reads, kernel.writes))
    if op.kind == GATHER:
        return sum([graph.values[value].num_bytes for value in kernel.writes]) / (LOOKED_UP * clock_hz)
    if op.kind == SCATTER:
        return graph.values[op.operands[-1]].num_elements / (ADDED * clock_hz)
    if op.kind == ALL_GATHER:
        parts = ways(op.attributes.get("axes", ()), mesh)
        return moved * (parts - 1) / parts / bytes_per_s
    return moved / bytes_per_s
