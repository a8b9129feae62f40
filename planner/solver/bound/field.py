"""A problem laid out for message passing: every table from both ends, every node's edges in the order of the nodes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Floats, Ints, starts
from ..compiled import compiled
from ..problem import Problem


class Field(NamedTuple):
    """Half edges are sorted by node and, within one, by the other end; a message has a number for each own choice."""

    choice_start: Ints
    half_start: Ints  # nodes + 1
    backward: Ints  # of each node: how many of its half edges lead to nodes before it
    other: Ints  # half edges: the node that it leads to
    twin: Ints  # half edges: the same edge's other half
    message_at: Ints  # half edges + 1
    table_at: Ints  # half edges
    table: Floats  # other end's choices x own choices, for each half edge
    second: Ints  # edges: the half edge of the second end, whose table lies as in the problem
    table_start: Ints  # of the problem


def lay_out(problem: Problem) -> Field:
    """The field of a problem; edges between two nodes must be one."""
    ends, edges = problem.ends, problem.edges
    own = ends.T.ravel()  # first ends, then second ends
    other = ends[:, ::-1].T.ravel()
    order = np.lexsort((other, own))
    place = np.empty(2 * edges, np.int64)
    place[order] = np.arange(2 * edges)
    counts = problem.counts
    size = counts[own] * counts[other]
    table_at = starts(size[order])
    table = np.empty(2 * len(problem.tables))
    _copy_tables(ends, counts, problem.table_start, problem.tables, table_at, place, table)
    half_start = starts(np.bincount(own, minlength=problem.nodes).astype(np.int64))
    backward = np.bincount(own[other < own], minlength=problem.nodes).astype(np.int64)
    return Field(
        choice_start=problem.choice_start,
        half_start=half_start,
        backward=backward,
        other=other[order],
        twin=place[(order + edges) % max(2 * edges, 1)],
        message_at=starts(counts[own[order]]),
        table_at=table_at[:-1].copy(),
        table=table,
        second=place[edges:],
        table_start=problem.table_start,
    )


@compiled
def _copy_tables(
    ends: Ints, counts: Ints, table_start: Ints, tables: Floats, table_at: Ints, place: Ints, out: Floats
) -> None:
    """Each table twice: for the first end transposed, so that a node's own choices always lie side by side."""
    for e in range(len(ends)):
        rows, columns = counts[ends[e, 0]], counts[ends[e, 1]]
        of_first, of_second = table_at[place[e]], table_at[place[len(ends) + e]]
        for i in range(rows):
            for j in range(columns):
                value = tables[table_start[e] + i * columns + j]
                out[of_second + i * columns + j] = value
                out[of_first + j * rows + i] = value
