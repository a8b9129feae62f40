"""Neighbourhoods of a plan: which nodes to choose anew together, and the problem that they make."""

from __future__ import annotations

import numpy as np

from ..arrays import Flags, Floats, Ints, spans, starts
from ..compiled import compiled
from ..problem import Problem
from ..rows_used import Usage, add_use, usage_of, used_by


def restrict(problem: Problem, choices: Ints, free: Flags) -> Problem:
    """The problem of the free nodes, in their order, with the others' choices as they are."""
    node = np.flatnonzero(free)
    number = np.cumsum(free) - 1
    first, second = problem.ends[:, 0], problem.ends[:, 1]
    edge = np.flatnonzero(free[first] & free[second])
    costs = problem.costs.copy()
    constant = _fold_in(problem.ends, problem.table_start, problem.tables, problem.choice_start, costs, choices, free)
    piece = np.flatnonzero(free[problem.piece_nodes])
    sizes = np.diff(problem.table_start)[edge]
    amounts = np.diff(problem.usage_start)[piece]
    counts = problem.counts[node]
    return Problem(
        choice_start=starts(counts),
        costs=costs[spans(problem.choice_start[node], counts)],
        ends=number[problem.ends[edge]],
        table_start=starts(sizes),
        tables=problem.tables[spans(problem.table_start[edge], sizes)],
        piece_nodes=number[problem.piece_nodes[piece]],
        piece_rows=problem.piece_rows[piece],
        usage_start=starts(amounts),
        usages=problem.usages[spans(problem.usage_start[piece], amounts)],
        limits=problem.limits - _used_by_fixed(usage_of(problem), choices, free),
        constant_cost=problem.constant_cost + constant,
    )


@compiled
def _fold_in(
    ends: Ints, table_start: Ints, tables: Floats, choice_start: Ints, costs: Floats, choices: Ints, free: Flags
) -> float:
    """Adds edges with one free end to its costs; what the fixed nodes and the edges between them cost."""
    constant = 0.0
    for node in range(len(free)):
        if not free[node]:
            constant += costs[choice_start[node] + choices[node]]
    for e in range(len(ends)):
        a, b = ends[e]
        if free[a] and free[b]:
            continue
        columns = choice_start[b + 1] - choice_start[b]
        at = table_start[e]
        if free[a]:
            for i in range(choice_start[a + 1] - choice_start[a]):
                costs[choice_start[a] + i] += tables[at + i * columns + choices[b]]
        elif free[b]:
            for j in range(columns):
                costs[choice_start[b] + j] += tables[at + choices[a] * columns + j]
        else:
            constant += tables[at + choices[a] * columns + choices[b]]
    return constant


@compiled
def _used_by_fixed(usage: Usage, choices: Ints, free: Flags) -> Ints:
    used = used_by(usage, choices)
    for node in range(len(free)):
        if free[node]:
            add_use(usage, used, node, choices[node], -1)
    return used


@compiled
def ball(half_start: Ints, other: Ints, centre: int, size: int) -> Flags:
    """The ``size`` nodes nearest to the centre, by edges."""
    free = np.zeros(len(half_start) - 1, np.bool_)
    queue = np.empty(len(free), np.int64)
    queue[0], free[centre] = centre, True
    head, tail = 0, 1
    while head < tail and tail < size:
        node = queue[head]
        head += 1
        for h in range(half_start[node], half_start[node + 1]):
            near = other[h]
            if not free[near] and tail < size:
                free[near] = True
                queue[tail] = near
                tail += 1
    return free


@compiled
def users(usage: Usage, row: int) -> Ints:
    """The nodes whose choices differ in what they use of the row."""
    found = np.zeros(len(usage.piece_start) - 1, np.bool_)
    for node in range(len(found)):
        for p in range(usage.piece_start[node], usage.piece_start[node + 1]):
            found[node] = found[node] or usage.rows[p, 0] <= row < usage.rows[p, 1]
    return np.flatnonzero(found)
