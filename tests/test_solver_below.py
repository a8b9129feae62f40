"""All solutions of a problem that cost less than so much."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.planner.solver.below import below
from meshwright.planner.solver.every import every
from meshwright.planner.solver.problem import Problem, build
from test_solver_every import problems

MANY = 10_000


def go() -> np.ndarray:
    return np.zeros(1, np.bool_)


@settings(deadline=None)
@given(problems(), st.sampled_from([0.0, 1.0, 3.0, 4.5, 20.0]))
def test_those_that_cost_less_are_listed_as_they_are_among_all(problem: Problem, cutoff: float) -> None:
    listed, found = every(problem, MANY), below(problem, cutoff, MANY, go())
    assert listed is not None
    assert found is not None
    cheap = listed[1] < cutoff
    assert found[1] == pytest.approx(listed[1][cheap])
    assert {*map(tuple, found[0].tolist())} == {*map(tuple, listed[0][cheap].tolist())}


def test_of_many_nodes_few_are_looked_at() -> None:
    """There are 10^20 ways to choose, three of which cost less than two and a half."""
    nodes = 20
    costs = [np.arange(10.0) for _ in range(nodes)]
    ends = np.array([(node, node + 1) for node in range(nodes - 1)])
    tables = [np.where(np.eye(10, dtype=bool), 0.0, 1.0).ravel() for _ in ends]
    found = below(build(costs=costs, ends=ends, tables=tables, resources=[]), 2.5, MANY, go())
    assert found is not None
    assert found[1].tolist() == [0.0, *(2.0,) * 2]
    assert not found[0][0].any()


def test_more_than_may_be_begun_are_none() -> None:
    costs = [np.zeros(10) for _ in range(6)]
    problem = build(costs=costs, ends=np.empty((0, 2), np.int64), tables=[], resources=[])
    assert below(problem, 1.0, 1000, go()) is None
    listed = below(problem, 1.0, 10**6, go())
    assert listed is not None
    assert len(listed[0]) == 10**6
