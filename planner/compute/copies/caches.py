"""What a step computes of a cache that it is given and updates: its numbers come into registers as the cache lies.

Keys and values of a few heads lie with these on the rows of registers, which other numbers do not fill up. What is
multiplied with them and added up goes through eight rows for however few (seen on v3, v4, v5e, v5p and v6e: of two
heads as long as of eight). What a step only reads of its arguments is multiplied by the matrix unit, in any layout, but
by a vector as a cache is (v5e, v6e: weights of four heads, which v3 has lie otherwise).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ...fusion.nature import PRODUCTS, REDUCE, UPDATE
from ...graph import Graph
from ...kernels import Kernel
from ..work import LANES, LOOP, SUBLANES, Work

MATRIX_RANK = 2
SUMS = PRODUCTS | {REDUCE}


def few_rows(graph: Graph, whole: Collection[int]) -> dict[int, float]:
    """The arguments whose rows do not fill registers, updated or lying ``whole``, and how often they would fit into
    those they take.
    """
    given = frozenset(graph.arguments)
    rows_of = {value: graph.shape(value)[-2] for value in given.intersection(whole)}
    found = {value: SUBLANES / rows for value, rows in rows_of.items() if 0 < rows < SUBLANES}
    for op in graph.of_kind(UPDATE):
        *outer, rows, lanes = (1, 1, *graph.shape(op.results[0]))
        if op.operands[0] in given and len(outer) > MATRIX_RANK and 1 < rows < SUBLANES and lanes >= LANES:
            found[op.results[0]] = SUBLANES / rows
    return found


def through_few_rows(graph: Graph, kernel: Kernel, work: Work, few: Mapping[int, float]) -> Work:
    """The work of a kernel that adds up what it makes of such."""
    growth = max((few[value] for value in kernel.reads if value in few), default=1.0)
    if growth <= 1 or work.kind != LOOP or all(graph.ops[number].kind not in SUMS for number in kernel.ops):
        return work
    return replace(
        work,
        spill_bytes=int(work.spill_bytes * growth),
        space_bytes=int(work.space_bytes * growth),
        registers=work.registers * growth,
    )
