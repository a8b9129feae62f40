"""Every solution of a small problem."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Ints
from .problem import Problem

MOST_NUMBERS = 10_000_000


def every(problem: Problem, most: int) -> tuple[Ints, Floats] | None:
    """The choices of each solution within the limits (solutions x nodes), and what it costs; those that cost least come
    first. None of a problem that has more than ``most`` ways to choose, or too many nodes to write them all down.
    """
    counts = [int(count) for count in problem.counts]
    ways = math.prod(counts)
    if ways > most or ways * len(counts) > MOST_NUMBERS:
        return None
    left, choices = np.arange(ways), np.empty((len(counts), ways), np.int64)
    for node in reversed(range(len(counts))):
        left, choices[node] = np.divmod(left, max(counts[node], 1))
    cost = np.full(choices.shape[1], problem.constant_cost)
    for node, begin in enumerate(problem.choice_start[:-1]):
        cost += problem.costs[begin + choices[node]]
    for (a, b), begin in zip(problem.ends, problem.table_start[:-1], strict=True):
        cost += problem.tables[begin + choices[a] * counts[b] + choices[b]]
    choices, cost = choices[:, np.isfinite(cost)], cost[np.isfinite(cost)]
    fits = within(problem, choices)
    choices, cost = choices[:, fits], cost[fits]
    order = np.argsort(cost, kind="stable")
    return choices[:, order].T, cost[order]


def within(problem: Problem, choices: Ints) -> NDArray[np.bool_]:
    """Which solutions (nodes x solutions) are within the limits."""
    used = np.zeros((len(problem.limits) + 1, choices.shape[1]), np.int64)
    pieces = zip(problem.piece_nodes, problem.piece_rows, problem.usage_start[:-1], strict=True)
    for node, (first, end), begin in pieces:
        own = problem.usages[begin + choices[node]]
        used[first] += own
        used[end] -= own
    beyond = np.maximum(np.cumsum(used[:-1], axis=0) - problem.limits[:, None], 0)
    return np.asarray(beyond.sum(axis=0) == 0, np.bool_)
