"""What a step computes of a cache that it is given and updates: its numbers come into registers as the cache lies.

Keys and values of a few heads lie with these on the rows of registers, which other numbers do not fill up. What is
multiplied with them and added up goes through eight rows for however few (seen on v3, v4, v5e, v5p and v6e: of two
heads as long as of eight). What a step only reads of its arguments is multiplied by the matrix unit, in any layout.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ...fusion.nature import REDUCE, UPDATE
from ...graph import Graph
from ...kernels import Kernel
from ..work import LANES, LOOP, SUBLANES, Work

MATRIX_RANK = 2


def few_rows(graph: Graph) -> dict[int, float]:
    """The updated arguments whose rows do not fill registers, and how often they would fit into those they take."""
    given = frozenset(graph.arguments)
    found = dict[int, float]()
    for op in graph.of_kind(UPDATE):
        *outer, rows, lanes = (1, 1, *graph.shape(op.results[0]))
        if op.operands[0] in given and len(outer) > MATRIX_RANK and 1 < rows < SUBLANES and lanes >= LANES:
            found[op.results[0]] = SUBLANES / rows
    return found


def through_few_rows(graph: Graph, kernel: Kernel, work: Work, few: Mapping[int, float]) -> Work:
    """The work of a kernel that adds up what it makes of such."""
    growth = max((few[value] for value in kernel.reads if value in few), default=1.0)
    if growth == 1 or work.kind != LOOP or all(graph.ops[number].kind != REDUCE for number in kernel.ops):
        return work
    return replace(
        work,
        spill_bytes=int(work.spill_bytes * growth),
        space_bytes=int(work.space_bytes * growth),
        registers=work.registers * growth,
    )
