"""The cost of choices, and whether they are allowed."""

from __future__ import annotations

import numpy as np

from .arrays import Ints
from .problem import Problem
from .rows_used import usage_of, used_by


def cost_of(problem: Problem, choices: Ints) -> float:
    """What the choices cost; infinite where a choice or a pair is forbidden. Usage is not looked at."""
    first, second = problem.ends[:, 0], problem.ends[:, 1]
    pairs = choices[first] * problem.counts[second] + choices[second]
    of_nodes = problem.costs[problem.choice_start[:-1] + choices].sum()
    of_edges = problem.tables[problem.table_start[:-1] + pairs].sum()
    return float(of_nodes + of_edges + problem.constant_cost)


def within_limits(problem: Problem, choices: Ints) -> bool:
    """Whether no row is used beyond its limit."""
    return bool(np.all(used_by(usage_of(problem), choices) <= problem.limits))
