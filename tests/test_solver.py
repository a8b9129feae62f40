"""The solver against exhaustive search: reductions, bounds, fixing, the tree, neighbourhoods, the whole."""

from __future__ import annotations

import itertools
from unittest.mock import patch

import numpy as np
import pytest
from choice_problems import least_cost, price, problems
from extent import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.planner.solver import solve as solving
from meshwright.planner.solver.arrays import Ints
from meshwright.planner.solver.bound.dual import climb_dual
from meshwright.planner.solver.clock import Clock
from meshwright.planner.solver.incumbent import Incumbent
from meshwright.planner.solver.problem import Problem, Resource, build
from meshwright.planner.solver.reduce.pipeline import reduce
from meshwright.planner.solver.reduce.rows import fewer_rows
from meshwright.planner.solver.search.ledger import Ledger
from meshwright.planner.solver.search.neighbourhood import restrict
from meshwright.planner.solver.search.tree import hunt
from meshwright.planner.solver.search.walk import HEAT, Walker
from meshwright.planner.solver.solve import solve

RUNNING = np.zeros(1, np.bool_)
MANY = settings(max_examples=examples(50, 150), deadline=None)


def ledger(left: float = 1e12, step: float = 1.0) -> Ledger:
    return Ledger(halt=RUNNING, step=step, left=left)


@MANY
@given(problems(), st.booleans())
def test_reductions_keep_the_least_cost_and_lead_back(problem: Problem, pairs: bool) -> None:
    reduction = reduce(problem, pairs=pairs)
    best = least_cost(problem)
    if reduction.problem is None:
        assert best == np.inf
        return
    assert least_cost(reduction.problem) == best
    if best == np.inf:
        return
    small = solve(reduction.problem, time_limit_s=600)
    assert small.choices is not None
    assert price(problem, tuple(reduction.choices(small.choices))) == best


@MANY
@given(problems())
def test_a_bound_is_never_above_the_least_cost(problem: Problem) -> None:
    reduced = reduce(problem).problem
    if reduced is None or reduced.nodes == 0:
        return
    dual = climb_dual(reduced, halt=RUNNING, sweeps=40)
    best = least_cost(problem)
    assert dual.bound <= best
    assert dual.cost >= best
    if np.isfinite(dual.cost):
        assert price(reduced, tuple(dual.choices)) == dual.cost


@MANY
@given(problems(), st.integers(-3, 3))
def test_fixing_keeps_every_solution_up_to_the_cutoff(problem: Problem, above: int) -> None:
    reduced = reduce(problem, pairs=False).problem
    best = least_cost(problem)
    if reduced is None or reduced.nodes == 0 or best == np.inf:
        return
    fixed = climb_dual(reduced, halt=RUNNING, sweeps=10).fixed(best + above)
    assert above < 0 or least_cost(fixed) == best


@MANY
@given(problems(), st.integers(-1, 2))
def test_a_hunt_finds_the_cheapest_up_to_the_cutoff_or_proves_that_there_is_none(problem: Problem, above: int) -> None:
    best = least_cost(problem)
    cutoff = best + above if np.isfinite(best) else 100.0
    found = hunt(problem, cutoff, ledger())
    assert found.closed
    if best <= cutoff:
        assert found.choices is not None
        assert price(problem, tuple(found.choices)) == found.cost == best
    else:
        assert found.choices is None


@MANY
@given(problems())
def test_the_whole_solver_gives_the_least_cost_or_proves_that_there_is_none(problem: Problem) -> None:
    solution = solve(problem, time_limit_s=600)
    best = least_cost(problem)
    if best == np.inf:
        assert solution.status == "infeasible"
        return
    assert solution.status == "optimal"
    assert solution.choices is not None
    assert price(problem, tuple(solution.choices)) == solution.cost == best
    assert solution.gap == 0.0


@MANY
@given(problems(), st.sampled_from([-2, -1, -0.5, 0, 0.5, 1, 2.5, 3]))
def test_what_is_not_below_a_cost_is_not_looked_for(problem: Problem, above: float) -> None:
    best = least_cost(problem)
    below = best + above if np.isfinite(best) else 100.0
    solution = solve(problem, time_limit_s=600, below=below)
    if best < below:
        assert solution.cost == best
        assert solution.status == "optimal"
    else:
        assert solution.choices is None
        assert below <= solution.bound <= best


@pytest.mark.parametrize(("costs", "rounded"), [([3.0, 48.0], 48.0), ([0.5, 48.0], 48.25)])
def test_a_cutoff_between_whole_costs_is_the_one_before(costs: list[float], rounded: float) -> None:
    """Where nothing is found below it that cost and one is the bound, and not what comes after the cutoff and one."""
    problem = build(costs=[np.array(costs)], ends=np.zeros((0, 2), np.int64), tables=[])
    state = Incumbent(problem=problem, clock=Clock(60.0), on_stage=None)
    assert state.rounded(48.25) == rounded
    assert state.rounded(np.inf) == np.inf


@settings(max_examples=40, deadline=None)
@given(problems())
def test_what_large_problems_are_solved_by_gives_the_least_cost_too(problem: Problem) -> None:
    """With as much work for walks and neighbourhoods as is worth while in small ones, and hunts from the start."""
    little = {"LARGE": -1, "WALK_WORK": 1e4, "ROUND_WORK": 1e4, "LATE": 1}
    with patch.multiple(solving, **little):
        solution = solve(problem, time_limit_s=600)
    best = least_cost(problem)
    assert solution.cost == best
    assert solution.status == ("infeasible" if best == np.inf else "optimal")


@settings(max_examples=50, deadline=None)
@given(problems(fractional=True))
def test_fractional_costs_are_solved_to_their_precision(problem: Problem) -> None:
    solution, best = solve(problem, time_limit_s=600), least_cost(problem)
    if best == np.inf:
        assert solution.status == "infeasible"
    else:
        assert solution.cost == pytest.approx(best)
        assert solution.bound <= best + 1e-6 * abs(best) + 1e-9


@MANY
@given(problems(), st.integers(0, 63))
def test_a_neighbourhood_is_the_problem_with_the_others_fixed(problem: Problem, mask: int) -> None:
    free = np.array([bool(mask >> node & 1) for node in range(problem.nodes)])
    choices = np.zeros(problem.nodes, np.int64)
    part = restrict(problem, choices, free)
    inner = np.minimum(1, part.counts - 1)
    choices[free] = inner
    assert price(part, tuple(inner)) == price(problem, tuple(choices))


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 9))
def test_a_walk_finds_allowed_solutions_at_their_cost_and_never_loses_its_best(problem: Problem, seed: int) -> None:
    reduced = reduce(problem, pairs=False).problem
    if reduced is None or reduced.nodes == 0:
        return
    walker = Walker(climb_dual(reduced, halt=RUNNING, sweeps=5), ledger=ledger(1e4), seed=seed)
    best = least_cost(reduced)
    if not walker.repair():
        return
    costs = [price(reduced, tuple(walker.choices))]
    assert np.isfinite(costs[0])

    def found(choices: Ints, cost: float) -> None:
        assert price(reduced, tuple(choices)) == cost < costs[-1]
        costs.append(cost)

    walker.anneal(walker.choices, costs[0], HEAT, enough=lambda cost: cost <= best, found=found)
    assert costs[-1] >= best


@settings(max_examples=60, deadline=None)
@given(problems(limited=True))
def test_rows_that_are_dropped_are_implied_by_those_kept(problem: Problem) -> None:
    fewer = fewer_rows(problem)
    for choices in itertools.product(*map(range, problem.counts)):
        kept = np.inf if fewer is None else price(fewer[0], choices)
        assert kept == price(problem, choices)
    if fewer is not None:
        assert fewer[1].max(initial=-1) < len(fewer[0].limits)


def test_a_chain_of_implied_rows_leaves_one() -> None:
    rows = 50
    nested = [[row, rows] for row in range(rows)]
    problem = build(
        costs=[np.zeros(2)] * rows,
        ends=np.zeros((0, 2), np.int64),
        tables=[],
        resources=[Resource(intervals=np.array(nested), usages=np.tile([0, 3], rows), limit=2 * rows)],
    )
    fewer = fewer_rows(problem)
    assert fewer is not None
    assert fewer[0].limits.tolist() == [2 * rows]
    assert set(fewer[1].tolist()) <= {0, -1}


def chain(nodes: int, seed: int) -> Problem:
    """A grid-like problem large enough that the search has to work, with a limit that binds."""
    random = np.random.default_rng(seed)
    ends = [(i, j) for i in range(nodes) for j in (i + 1, i + 5) if j < nodes]
    starts = np.arange(nodes)
    return build(
        costs=[random.integers(0, 50, 4).astype(float) for _ in range(nodes)],
        ends=np.array(ends),
        tables=[random.integers(0, 60, 16).astype(float) for _ in ends],
        resources=[
            Resource(
                intervals=np.stack((starts, starts + 8), axis=1), usages=random.integers(0, 20, 4 * nodes), limit=60
            )
        ],
    )


def test_the_answer_is_the_same_for_the_same_seed() -> None:
    first, second = (solve(chain(30, 3), time_limit_s=300, seed=5) for _ in range(2))
    assert first.choices is not None
    assert second.choices is not None
    assert first.choices.tolist() == second.choices.tolist()
    assert first.bound == second.bound


def test_a_solve_that_is_stopped_gives_the_best_so_far() -> None:
    solution = solve(chain(300, 1), time_limit_s=300, stop=lambda: True)
    assert solution.status in ("feasible", "optimal", "unknown")
    assert solution.bound <= solution.cost


def test_stages_say_what_they_gained() -> None:
    stages = solve(chain(30, 3), time_limit_s=300).stages
    assert stages[0].name == "reduce"
    assert [s.bound for s in stages] == sorted(s.bound for s in stages)
    assert [s.cost for s in stages] == sorted((s.cost for s in stages), reverse=True)


def test_with_an_effort_what_is_found_is_improved_before_it_ends() -> None:
    solution = solve(chain(60, 5), time_limit_s=300, effort=1e-9, until_found=True)
    assert solution.status == "feasible"
    assert solution.stages[-1].name == "improve"


def test_a_problem_without_nodes_costs_its_constant() -> None:
    solution = solve(build(costs=[], ends=np.zeros((0, 2), np.int64), tables=[]))
    assert (solution.status, solution.cost) == ("optimal", 0.0)


@MANY
@given(problems(), st.sampled_from([1e-12, 1e-9]))
def test_with_no_effort_worth_the_name_something_is_found_all_the_same(problem: Problem, effort: float) -> None:
    best = least_cost(problem)
    found = solve(problem, time_limit_s=600, effort=effort, until_found=True)
    assert (found.choices is None) == (best == np.inf)
    if found.choices is not None:
        assert found.bound <= best <= price(problem, tuple(found.choices)) == found.cost
