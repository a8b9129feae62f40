"""Pieces of usage made disjoint: at most one of a node on any row, none that uses nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Ints, starts
from ..compiled import compiled
from ..problem import Problem


def disjoint(problem: Problem) -> Problem:
    """The problem with each node's pieces sorted and disjoint; neighbours that use the same are one."""
    order = np.argsort(problem.piece_nodes, kind="stable")
    counts = problem.counts
    nodes, rows, usages = _split(
        counts, order, problem.piece_nodes, problem.piece_rows, problem.usage_start, problem.usages
    )
    return replace(problem, piece_nodes=nodes, piece_rows=rows, usage_start=starts(counts[nodes]), usages=usages)


@compiled
def _split(
    counts: Ints, order: Ints, nodes: Ints, rows: Ints, usage_start: Ints, usages: Ints
) -> tuple[Ints, Ints, Ints]:
    out_nodes = np.empty(2 * len(nodes), np.int64)
    out_rows = np.empty((2 * len(nodes), 2), np.int64)
    out_usages = np.empty(2 * len(usages), np.int64)
    pieces, filled, first = 0, 0, 0
    while first < len(order):
        node = nodes[order[first]]
        end = first
        while end < len(order) and nodes[order[end]] == node:
            end += 1
        mine = order[first:end]
        times = np.concatenate((rows[mine, 0], rows[mine, 1]))
        level = np.zeros(counts[node], np.int64)
        events = np.argsort(times, kind="mergesort")
        fresh = True
        for e in range(len(events)):
            event = events[e]
            piece = mine[event % len(mine)]
            sign = 1 if event < len(mine) else -1
            at = usage_start[piece]
            for i in range(len(level)):
                level[i] += sign * usages[at + i]
            if e + 1 == len(events) or times[events[e + 1]] == times[event]:
                continue
            if _same(level, out_usages[filled - len(level) : filled], out_rows, pieces, times[event], fresh):
                out_rows[pieces - 1, 1] = times[events[e + 1]]
            elif level.any():
                out_nodes[pieces] = node
                out_rows[pieces, 0], out_rows[pieces, 1] = times[event], times[events[e + 1]]
                out_usages[filled : filled + len(level)] = level
                filled += len(level)
                pieces += 1
                fresh = False
        first = end
    return out_nodes[:pieces].copy(), out_rows[:pieces].copy(), out_usages[:filled].copy()


@compiled
def _same(level: Ints, last: Ints, rows: Ints, pieces: int, begin: int, fresh: bool) -> bool:
    """Whether the node's last piece ends where this one begins and uses the same."""
    if fresh or rows[pieces - 1, 1] != begin:
        return False
    return bool(np.all(level == last))
