"""Rows that a neighbour implies: whatever is chosen, they have at least as much room left as it has."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..arrays import Ints, starts
from ..compiled import compiled, internal
from ..problem import Problem

NONE = -1
FAR = 1 << 62


class _Held(NamedTuple):
    """Who uses what: disjoint pieces, sorted by node and row."""

    counts: Ints
    piece_start: Ints  # nodes + 1
    rows: Ints  # pieces x 2
    usage_start: Ints
    usages: Ints
    limits: Ints


class _Chain(NamedTuple):
    """The rows still kept, each beside the next; and for each a linked list of the nodes that change there.

    A node changes at a row if it may not use the same there as on the kept row before. Lists may name nodes twice.
    """

    before: Ints
    after: Ints
    home: Ints  # the row that implied it, or the row itself
    first: Ints  # entry of each row's list
    last: Ints
    next: Ints  # entry after each
    node: Ints  # of each entry
    seen: Ints  # of each node: the turn that it was last looked at


def implied_by(problem: Problem) -> Ints:
    """For each row the kept one that implies it, or itself; pieces must be disjoint and sorted, as ``disjoint`` does.

    Kept rows are compared with those beside them again until none implies another.
    """
    rows = len(problem.limits)
    begin, end = problem.piece_rows[:, 0], problem.piece_rows[:, 1]
    node = np.concatenate((problem.piece_nodes[begin > 0], problem.piece_nodes[end < rows]))
    row = np.concatenate((begin[begin > 0], end[end < rows]))
    order = np.argsort(row, kind="stable")
    held = _Held(
        counts=problem.counts,
        piece_start=np.searchsorted(problem.piece_nodes, np.arange(problem.nodes + 1)),
        rows=problem.piece_rows,
        usage_start=problem.usage_start,
        usages=problem.usages,
        limits=problem.limits,
    )
    return _imply(held, _chain(rows, node[order], row[order], problem.nodes))


def _chain(rows: int, node: Ints, row: Ints, nodes: int) -> _Chain:
    """All rows, with their lists one after the other."""
    start = starts(np.bincount(row, minlength=rows).astype(np.int64))
    some = start[:-1] < start[1:]
    entry = np.arange(1, len(node) + 1)
    entry[start[1:][some] - 1] = NONE
    return _Chain(
        before=np.arange(-1, rows - 1),
        after=np.arange(1, rows + 1),
        home=np.arange(rows),
        first=np.where(some, start[:-1], NONE),
        last=np.where(some, start[1:] - 1, NONE),
        next=entry,
        node=node,
        seen=np.full(nodes, NONE),
    )


@compiled
def _imply(held: _Held, chain: _Chain) -> Ints:
    """Drops implied rows; where one goes, those that are now beside each other are compared anew."""
    rows = len(held.limits)
    stack = np.arange(rows, 0, -1)
    height, turn = rows, 0
    while height > 0:
        height -= 1
        row = stack[height]
        if row >= rows or chain.home[row] != row or chain.before[row] == NONE:
            continue
        left = chain.before[row]
        rise, fall = _most(held, chain, row, turn)
        turn += 1
        if fall <= held.limits[left] - held.limits[row]:
            joint = _drop(chain, left, row)
        elif rise <= held.limits[row] - held.limits[left]:
            joint = _drop(chain, row, left)
        else:
            continue
        stack[height] = joint
        height += 1
    for row in range(rows):
        end = row
        while chain.home[end] != end:
            end = chain.home[end]
        chain.home[row] = end
    return chain.home


@internal
def _drop(chain: _Chain, gone: int, stays: int) -> int:
    """Takes a row out; its list joins that of the next one kept, which is given back (one past the end: none)."""
    before, after = chain.before[gone], chain.after[gone]
    chain.home[gone] = stays
    if before != NONE:
        chain.after[before] = after
    if after == len(chain.home):
        return int(after)
    chain.before[after] = before
    if chain.first[gone] != NONE:
        chain.next[chain.last[gone]] = chain.first[after]
        if chain.first[after] == NONE:
            chain.last[after] = chain.last[gone]
        chain.first[after] = chain.first[gone]
    return int(after)


@internal
def _most(held: _Held, chain: _Chain, row: int, turn: int) -> tuple[int, int]:
    """By how much usage can at most rise and fall to a row from the one before; forgets nodes that do not change."""
    rise, fall = 0, 0
    kept, entry = NONE, chain.first[row]
    chain.first[row] = NONE
    while entry != NONE:
        node, following = chain.node[entry], chain.next[entry]
        if chain.seen[node] != turn:
            chain.seen[node] = turn
            there, here = _usage_at(held, node, chain.before[row]), _usage_at(held, node, row)
            if there != here:
                up, down = _change(held.usages, there, here, held.counts[node])
                rise += up
                fall += down
                if kept == NONE:
                    chain.first[row] = entry
                else:
                    chain.next[kept] = entry
                kept = entry
        entry = following
    chain.last[row] = kept
    if kept != NONE:
        chain.next[kept] = NONE
    return rise, fall


@internal
def _usage_at(held: _Held, node: int, row: int) -> int:
    """Where the usages of the node's piece on the row begin; NONE where it has none there."""
    begin, end = held.piece_start[node], held.piece_start[node + 1]
    while begin < end:
        middle = (begin + end) // 2
        if held.rows[middle, 1] <= row:
            begin = middle + 1
        elif held.rows[middle, 0] > row:
            end = middle
        else:
            return int(held.usage_start[middle])
    return NONE


@internal
def _change(usages: Ints, there: int, here: int, count: int) -> tuple[int, int]:
    """By how much a node's usage can at most rise and fall from one piece (or none) to another."""
    up, down = -FAR, -FAR
    for i in range(count):
        change = (usages[here + i] if here != NONE else 0) - (usages[there + i] if there != NONE else 0)
        up, down = max(up, change), max(down, -change)
    return up, down
