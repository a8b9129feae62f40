"""Small problems drawn at random, and exhaustive search over them."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from hypothesis import strategies as st
from meshwright.planner.solver.problem import Problem, Resource, build

LARGEST_COST = 12


@st.composite
def problems(draw: st.DrawFn, limited: bool | None = None, fractional: bool = False) -> Problem:
    """Up to six nodes of up to four choices, some pairs and choices forbidden, none to two resources."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    nodes = draw(st.integers(1, 6))
    counts = random.integers(1, 5, nodes)
    forbidden = draw(st.sampled_from([0.0, 0.1, 0.4, 0.7]))
    pairs = [p for p in itertools.permutations(range(nodes), 2) if random.random() < draw(st.sampled_from([0.2, 0.4]))]
    resources = 0 if limited is False else draw(st.integers(1 if limited else 0, 2))
    scale = 0.37 if fractional else 1.0
    return build(
        name="drawn",
        costs=[scale * _costs(random, forbidden / 4, c) for c in counts],
        ends=np.array(pairs, np.int64).reshape(-1, 2),
        tables=[scale * _costs(random, forbidden, counts[a] * counts[b]) for a, b in pairs],
        resources=[_resource(random, counts) for _ in range(resources)],
    )


def _costs(random: np.random.Generator, forbidden: float, size: int) -> Any:
    return np.where(random.random(size) < forbidden, np.inf, random.integers(-2, LARGEST_COST, size).astype(float))


def _resource(random: np.random.Generator, counts: Any) -> Resource:
    intervals = np.sort(random.integers(0, 7, (len(counts), 2)), axis=1)
    limit = int(random.integers(0, 6 * len(counts)))
    return Resource(intervals=intervals, usages=random.integers(0, 10, int(counts.sum())), limit=limit)


def price(problem: Problem, choices: tuple[int, ...]) -> float:
    """What choices cost, infinite where they are not allowed: by the definition, entry by entry."""
    total = problem.constant_cost
    for node, choice in enumerate(choices):
        total += problem.costs[problem.choice_start[node] + choice]
    for edge, (a, b) in enumerate(problem.ends):
        total += problem.tables[problem.table_start[edge] + choices[a] * problem.counts[b] + choices[b]]
    for row, limit in enumerate(problem.limits):
        used = 0
        for piece, node in enumerate(problem.piece_nodes):
            begin, end = problem.piece_rows[piece]
            used += problem.usages[problem.usage_start[piece] + choices[node]] if begin <= row < end else 0
        total += np.inf if used > limit else 0.0
    return float(total)


def least_cost(problem: Problem) -> float:
    """The least cost by trying everything; infinite where nothing is allowed."""
    return min(price(problem, choices) for choices in itertools.product(*map(range, problem.counts)))
