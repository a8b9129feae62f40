"""Every solution of a small problem."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .arrays import Floats, Ints
from .problem import Problem


def every(problem: Problem, most: int) -> tuple[Ints, Floats] | None:
    """The choices of each solution within the limits (solutions x nodes), and what it costs; those that cost least come
    first. None of a problem that has more than ``most`` ways to choose.
    """
    counts = [int(count) for count in problem.counts]
    if math.prod(counts) > most:
        return None
    choices = np.indices(counts, np.int64).reshape(len(counts), -1)
    cost = np.full(choices.shape[1], problem.constant_cost)
    for node, begin in enumerate(problem.choice_start[:-1]):
        cost += problem.costs[begin + choices[node]]
    for (a, b), begin in zip(problem.ends, problem.table_start[:-1], strict=True):
        cost += problem.tables[begin + choices[a] * counts[b] + choices[b]]
    choices, cost = choices[:, np.isfinite(cost)], cost[np.isfinite(cost)]
    fits = _fits(problem, choices)
    choices, cost = choices[:, fits], cost[fits]
    order = np.argsort(cost, kind="stable")
    return choices[:, order].T, cost[order]


def _fits(problem: Problem, choices: Ints) -> NDArray[np.bool_]:
    used = np.zeros((len(problem.limits) + 1, choices.shape[1]), np.int64)
    pieces = zip(problem.piece_nodes, problem.piece_rows, problem.usage_start[:-1], strict=True)
    for node, (first, end), begin in pieces:
        own = problem.usages[begin + choices[node]]
        used[first] += own
        used[end] -= own
    beyond = np.maximum(np.cumsum(used[:-1], axis=0) - problem.limits[:, None], 0)
    return np.asarray(beyond.sum(axis=0) == 0, np.bool_)
