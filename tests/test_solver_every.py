"""All solutions of a small problem."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.planner.solver.every import every
from meshwright.planner.solver.problem import FORBIDDEN, Problem, Resource, build

COSTS = st.sampled_from([0.0, 1.0, 2.0, 5.0, FORBIDDEN])


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    counts = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    pairs = [(a, b) for a, b in itertools.combinations(range(len(counts)), 2) if draw(st.booleans())]
    tables = [draw(st.lists(COSTS, min_size=counts[a] * counts[b], max_size=counts[a] * counts[b])) for a, b in pairs]
    intervals = [draw(st.tuples(st.integers(0, 2), st.integers(0, 4))) for _ in counts]
    usages = draw(st.lists(st.integers(0, 4), min_size=sum(counts), max_size=sum(counts)))
    used = Resource(intervals=np.array(intervals), usages=np.array(usages, np.int64), limit=draw(st.integers(0, 9)))
    return build(
        costs=[np.array(draw(st.lists(COSTS, min_size=count, max_size=count))) for count in counts],
        ends=np.array(pairs, np.int64).reshape(-1, 2),
        tables=[np.array(table) for table in tables],
        resources=[used],
    )


def cost_of(problem: Problem, choices: tuple[int, ...]) -> float:
    """Of one solution, one term after the other; infinite beyond a limit."""
    counts = problem.counts
    cost = sum(problem.costs[problem.choice_start[node] + choice] for node, choice in enumerate(choices))
    for (a, b), begin in zip(problem.ends, problem.table_start[:-1], strict=True):
        cost += problem.tables[begin + choices[a] * counts[b] + choices[b]]
    for row, limit in enumerate(problem.limits):
        pieces = zip(problem.piece_nodes, problem.piece_rows, problem.usage_start[:-1], strict=True)
        used = sum(problem.usages[begin + choices[node]] for node, (first, end), begin in pieces if first <= row < end)
        cost = math.inf if used > limit else cost
    return float(cost)


@settings(deadline=None)
@given(problems())
def test_every_solution_is_listed_once_the_cheapest_first(problem: Problem) -> None:
    ways = list(itertools.product(*map(range, problem.counts)))
    costs = {choices: cost_of(problem, choices) for choices in ways}
    found = every(problem, len(ways))
    assert found is not None
    listed = [tuple(int(choice) for choice in choices) for choices in found[0]]
    assert sorted(listed) == sorted(choices for choices, cost in costs.items() if math.isfinite(cost))
    assert list(found[1]) == sorted(costs[choices] for choices in listed) == [costs[choices] for choices in listed]


@pytest.mark.parametrize("nodes", [0, 70])
def test_nodes_without_a_choice_leave_one_way(nodes: int) -> None:
    problem = build(costs=[np.ones(1)] * nodes, ends=np.zeros((0, 2), np.int64), tables=[])
    found = every(problem, 1)
    assert found is not None
    assert found[0].tolist() == [[0] * nodes]
    assert found[1].tolist() == [float(nodes)]


def test_too_many_ways_are_not_looked_at() -> None:
    problem = build(costs=[np.zeros(3), np.zeros(2)], ends=np.zeros((0, 2), np.int64), tables=[])
    assert every(problem, 5) is None
    assert every(problem, 6) is not None
