"""Pieces of usage made disjoint: at most one of a node on any row, none that uses nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Ints, starts
from ..compiled import compiled, internal
from ..problem import Problem


def disjoint(problem: Problem) -> Problem:
    """The problem with each node's pieces sorted and disjoint; neighbours that use the same are one."""
    if not len(problem.piece_nodes):
        return problem
    order = np.argsort(problem.piece_nodes, kind="stable")
    counts = problem.counts
    owner, piece = np.tile(problem.piece_nodes[order], 2), np.tile(order, 2)
    row = problem.piece_rows[order].T.ravel()
    sign = np.repeat(np.array([1, -1]), len(order))
    event = np.lexsort((row, owner))
    nodes, rows, usages = _split(
        counts, owner[event], piece[event], row[event], sign[event], problem.usage_start, problem.usages
    )
    return replace(
        problem,
        piece_nodes=nodes.copy(),
        piece_rows=rows.copy(),
        usage_start=starts(counts[nodes]),
        usages=usages.copy(),
    )


@compiled
def _split(
    counts: Ints, owner: Ints, piece: Ints, row: Ints, sign: Ints, usage_start: Ints, usages: Ints
) -> tuple[Ints, Ints, Ints]:
    """Pieces from events: at a row a piece of the owner begins (sign 1) or ends (-1)."""
    out_nodes, out_rows = np.empty(len(owner), np.int64), np.empty((len(owner), 2), np.int64)
    out_usages = np.empty(2 * len(usages), np.int64)
    pieces, filled, of_node = 0, 0, 0
    level = np.empty(counts.max(), np.int64)
    for e in range(len(owner)):
        node, begin = owner[e], row[e]
        count = counts[node]
        if e == 0 or owner[e - 1] != node:
            level[:count] = 0
            of_node = pieces
        for i in range(count):
            level[i] += sign[e] * usages[usage_start[piece[e]] + i]
        if e + 1 == len(owner) or owner[e + 1] != node or row[e + 1] == begin:
            continue
        last = out_usages[filled - count : filled] if pieces > of_node else level[:0]
        if pieces > of_node and out_rows[pieces - 1, 1] == begin and not _differ(level, last):
            out_rows[pieces - 1, 1] = row[e + 1]
        elif _users(level, count):
            out_nodes[pieces], out_rows[pieces, 0], out_rows[pieces, 1] = node, begin, row[e + 1]
            out_usages[filled : filled + count] = level[:count]
            filled += count
            pieces += 1
    return out_nodes[:pieces], out_rows[:pieces], out_usages[:filled]


@internal
def _differ(level: Ints, last: Ints) -> int:
    """How many of the choices use something else."""
    found = 0
    for i in range(len(last)):
        found += level[i] != last[i]
    return found


@internal
def _users(level: Ints, count: int) -> int:
    """How many of the choices use something."""
    found = 0
    for i in range(count):
        found += level[i] != 0
    return found
