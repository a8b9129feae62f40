"""The search: which candidates are solved, what is proven, pins, alternatives, what is said where nothing fits."""

from __future__ import annotations

import functools
import json
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from threading import Event, Thread, Timer
from types import SimpleNamespace
from typing import Any

import pytest
from fake_search import FakeEstimate, FakeSolver, FakeStep, ask, by_axes, dearer_by_hand, written
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Axis, Mesh, Plan, Remat, Replicate, Rule
from meshwright.dsl.reader import loads
from meshwright.dsl.writer import dumps
from meshwright.planner.search.alike import alike
from meshwright.planner.search.board import Board
from meshwright.planner.search.bounding import FIRST
from meshwright.planner.search.candidates import policy_name, policy_of
from meshwright.planner.search.meshes import foldings
from meshwright.planner.search.others import differing_plans
from meshwright.planner.search.pool import Here
from meshwright.planner.search.progress import Clock, Progress, gap_of
from meshwright.planner.search.question import Answer, Means, Question
from meshwright.planner.search.report import headline, misfit_text, notes, tables
from meshwright.planner.search.result import PricedPlan
from meshwright.planner.search.task import First, Found, Task, Tell
from meshwright.planner.search.tried import Tried, why_not
from meshwright.planner.topology import physical


def test_the_best_mesh_is_found_and_proven() -> None:
    result, _, _ = ask()
    assert (result.status, result.step_time_s, result.gap) == ("optimal", 1 / 32, 0.0)
    assert result.meshes.left_out == 0
    assert {row.why for row in result.candidates if row.step_time_s is None} == {"its bound is above the best plan"}


def test_each_candidate_is_solved_below_the_best_before_it() -> None:
    _, solver, _ = ask()
    cutoffs = [task.cutoff_s for task in solver.tasks]
    assert cutoffs[0] == math.inf
    assert cutoffs == sorted(cutoffs, reverse=True)


def test_meshes_of_three_axes_are_solved_below_the_first_plan_and_not_below_what_layouts_promise() -> None:
    """A plan takes twice what its layouts promise: those of few axes are solved before it is written."""

    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        found = written(layouts, plan, workload, **options)
        price = FakeEstimate(2 * found.estimate.step_time_s, found.estimate.peak_bytes)
        return SimpleNamespace(plan=found.plan, estimate=price)

    result, solver, _ = ask(minimise=minimise)
    cutoffs = {3: set[float](), 2: set[float]()}
    for task in solver.tasks:
        cutoffs.setdefault(len(task.mesh.sizes), set()).add(task.cutoff_s)
    assert min(cutoffs[2]) == 1 / 32  # what x=32 promises
    assert cutoffs[3] == {2 / 32}
    assert result.step_time_s == 2 / 32


def test_alternatives_that_are_not_known_yet_are_not_written() -> None:
    """With fewer plans than are asked for more time is kept to write them."""
    assert not Board(tried=[], top_k=2).is_written


def test_two_searches_give_the_same_plan() -> None:
    first, _, _ = ask(policies=("none", "full", "dots"))
    second, _, _ = ask(policies=("none", "full", "dots"))
    assert dumps(first.plan) == dumps(second.plan)
    assert first.candidates == second.candidates


def test_of_long_steps_the_best_is_written_while_others_are_solved(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _, _ = ask(minimise=dearer_by_hand())
    monkeypatch.setattr("meshwright.planner.search.board.LARGE", 0)
    solver = FakeSolver(by_axes)
    begun: list[int] = []
    ended: list[Plan] = []

    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        if options["begun"] is not None:
            return options["begun"]
        begun.append(len(solver.tasks))
        found = written(layouts, plan, workload, **options)
        ended.append(plan)
        return found

    ahead, _, _ = ask(solver=solver, minimise=minimise)
    assert dumps(ahead.plan) == dumps(plain.plan)
    assert begun[0] < len(solver.tasks)
    assert [plan.mesh.sizes for plan in ended] == [ahead.plan.mesh.sizes if ahead.plan else None]


def flat(plan: Plan) -> tuple[float, int]:
    """All alike."""
    return 1.0, 0


@pytest.mark.parametrize(("lines", "is_left"), [(200, True), (20, True), (14, False)])
def test_a_best_plan_of_more_lines_than_few_is_left_for_one_that_takes_little_longer(
    monkeypatch: pytest.MonkeyPatch, lines: int, is_left: bool
) -> None:
    monkeypatch.setattr("meshwright.planner.search.board.LARGE", 0)
    _, solver, _ = ask(prices=flat, solver=FakeSolver(flat, bound=0.5))
    order = list(dict.fromkeys(tuple(task.mesh.sizes.values()) for task in solver.tasks))

    def falling(plan: Plan) -> tuple[float, int]:
        return 1 - 1e-3 * order.index(tuple(size or 1 for size in plan.mesh.sizes.values())), 0

    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        found = written(layouts, plan, workload, **options)
        is_best = tuple(plan.mesh.sizes.values()) == order[-1]
        more = tuple(Rule(pattern=f"x/{i}", assignment=Replicate()) for i in range(lines * is_best))
        return SimpleNamespace(plan=replace(found.plan, rules=(*more, *found.plan.rules)), estimate=found.estimate)

    result, _, _ = ask(prices=falling, solver=FakeSolver(falling, bound=0.5), minimise=minimise)
    assert result.plan is not None
    assert (len(result.plan.rules) == 1) == is_left
    assert any(f"its plan has {lines + 1} lines" in row.why for row in result.candidates) == is_left


@pytest.mark.parametrize(("bound", "is_shorter"), [(0.5, True), (1.0, False)])
def test_lines_without_which_a_plan_takes_no_longer_are_left_out_where_it_is_not_proven(
    bound: float, is_shorter: bool
) -> None:
    """Of 20 lines on computed values one helps, one makes it slower, and the others change nothing."""

    def priced(plan: Plan) -> tuple[float, int]:
        lines = {rule.pattern for rule in plan.rules}
        return 1.0 - 0.25 * ("ops/helps" in lines) + 0.125 * ("ops/slows" in lines), 1000

    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        names = ["ops/helps", "ops/slows", *(f"ops/{i}" for i in range(18)), "**"]
        whole = replace(plan, rules=tuple(Rule(pattern=name, assignment=Replicate()) for name in names))
        return SimpleNamespace(plan=whole, estimate=workload.estimate(whole))

    def solved(plan: Plan) -> tuple[float, int]:
        return 0.875, 1000

    result, _, _ = ask(priced, text="mesh: {a: 32}", solver=FakeSolver(solved, bound=bound), minimise=minimise)
    found = [rule.pattern for rule in result.plan.rules]
    if is_shorter:
        assert (found, result.step_time_s) == (["ops/helps", "**"], 0.75)
    else:
        assert (len(found), result.step_time_s) == (21, 0.875)


class SlowAtFirst(FakeSolver):
    """A mesh with an axis of 16 is not solved in its first part of the time."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        seen = [other for other in self.tasks if other.mesh == task.mesh]
        if 16 in task.mesh.sizes.values() and not seen:
            self.tasks.append(task)
            return Found(status="unknown", objective_s=math.inf, bound_s=0.0, ended=True)
        return super().__call__(task, stop)


def test_where_meshes_are_left_out_none_is_solved_twice_to_prove_more_of_it() -> None:
    result, solver, _ = ask(solver=SlowAtFirst(by_axes), topology="v3:16x16", time_limit_s=60.0)
    assert result.meshes.left_out
    assert any(16 in task.mesh.sizes.values() for task in solver.tasks)
    assert len(solver.tasks) == len({task.mesh for task in solver.tasks})


def test_what_the_time_ended_is_solved_once_more_in_what_is_left() -> None:
    options = {"text": "mesh: {a: auto, b: auto}", "time_limit_s": 60.0}
    slow, solver, _ = ask(solver=SlowAtFirst(by_axes), **options)
    quick, _, _ = ask(**options)
    again = [task for task in solver.tasks if 16 in task.mesh.sizes.values()]
    assert len(again) > len({tuple(task.mesh.sizes) for task in again})
    assert (slow.step_time_s, slow.bound_s) == (quick.step_time_s, quick.bound_s)


@pytest.mark.parametrize(
    ("bound_s", "objective_s", "why"),
    [
        (2.0, 2.5, "its bound is above the best plan"),
        (1.0, 2.5, "its layouts cost more than the best plan"),
        (1.0, 1.5, "the time was over before it was written"),
    ],
)
def test_what_could_be_better_than_the_best_plan_is_not_said_to_cost_more(
    bound_s: float, objective_s: float, why: str
) -> None:
    tried = Tried(candidate=None, bound_s=bound_s, objective_s=objective_s, layouts={"params/w": ((), ())})
    assert why_not(tried, 2.0) == why


class Unbounded(FakeSolver):
    """Nothing is known of several meshes at once."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        if not task.alike:
            return super().__call__(task, stop)
        self.tasks.append(task)
        return Found(status="unknown", objective_s=math.inf, bound_s=0.0)


def test_meshes_of_the_same_sizes_are_bounded_together_and_solved_where_they_may_be_better() -> None:
    hopeless, solver, _ = ask()
    bounded = [task for task in solver.tasks if task.alike]
    assert {tuple(task.mesh.sizes.values()) for task in bounded} == {(4, 4, 2), (8, 2, 2)}
    assert sum(len(task.alike) for task in bounded) == hopeless.meshes.tried
    assert len(solver.tasks) - len(bounded) == 1 + FIRST  # of one axis, and of two
    assert all(len(task.mesh.sizes) < 3 for task in solver.tasks if not task.alike)
    assert hopeless.status == "optimal"
    again, others, _ = ask(solver=Unbounded(by_axes))
    assert sum(len(task.mesh.sizes) == 3 and not task.alike for task in others.tasks) > len(bounded)
    assert again.step_time_s == hopeless.step_time_s


class Leaving(FakeSolver):
    """Proves nothing of what is to be bounded with others."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        found = super().__call__(task, stop)
        is_left = task.partly and not task.alike and len(task.mesh.sizes) == 3
        return replace(found, status="feasible", bound_s=0.0) if is_left else found


def test_what_is_left_to_be_bounded_with_others_is_so_where_few_meshes_were_solved_before() -> None:
    """Of eight devices one mesh is of two axes."""
    result, solver, _ = ask(flat, topology="cpu:8", solver=Leaving(flat))
    assert [tuple(task.mesh.sizes.values()) for task in solver.tasks if not task.alike] == [(8,), (4, 2), (2, 2, 2)]
    assert len(solver.tasks) == 4
    assert result.status == "optimal"


class Ending(Leaving):
    """Is ended while it bounds several meshes, whoever ends it."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        found = super().__call__(task, stop)
        return Found(status="unknown", objective_s=math.inf, bound_s=0.0, ended=True) if task.alike else found


def test_nothing_is_bounded_once_a_search_is_stopped() -> None:
    """What was ended is asked once more in a later round, and not as long as there would be time."""
    solver = Ending(flat)
    result, _, _ = ask(flat, topology="cpu:8", solver=solver, stop=lambda: len(solver.tasks) > 3)
    assert result.interrupted
    assert sum(bool(task.alike) for task in solver.tasks) == 1
    solver = Ending(flat)
    ask(flat, topology="cpu:8", solver=solver)
    assert 0 < sum(bool(task.alike) for task in solver.tasks) < 8


def test_several_meshes_are_bounded_below_the_best_and_within_no_limit_on_memory() -> None:
    _, solver, _ = ask()
    for task in solver.tasks:
        if task.alike:
            assert (task.cutoff_s, task.limit_bytes, task.partly) == (1 / 32, None, True)
            fine = sorted(task.mesh.sizes.values())
            assert any(sorted(mesh.sizes.values()) == fine for mesh in task.alike)
            assert all(math.prod(mesh.sizes.values()) == 32 for mesh in task.alike)


def test_where_pins_say_something_no_meshes_are_bounded_together() -> None:
    _, solver, _ = ask(text="mesh: auto\ntensors:\n  batch: replicate")
    assert solver.tasks
    assert not any(task.alike or task.partly for task in solver.tasks)


@pytest.mark.parametrize("inside", [False, True])
def test_pins_are_loosened_where_kernels_have_something_inside_at_them(
    monkeypatch: pytest.MonkeyPatch, inside: bool
) -> None:
    """Elsewhere that is the program that was solved."""

    class Solver(FakeSolver):
        def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
            return replace(super().__call__(task, stop), inside=inside)

    monkeypatch.setattr(FakeStep, "given_under", lambda self, plan: {"ops/a": (("x",), ())})
    result, solver, _ = ask(text="mesh: {x: 8}", topology="cpu:8", solver=Solver(by_axes))
    assert result.status == "optimal"
    assert [task.loose for task in solver.tasks] == ([False, True] if inside else [False])


def test_what_was_left_out_is_proven_with_others_of_its_sizes() -> None:
    result, solver, _ = ask(topology="v3:32x32")
    assert result.meshes.left_out > 0
    assert (result.status, result.bound_s) == ("optimal", result.tried_bound_s)
    assert sum(len(task.alike) for task in solver.tasks) > result.meshes.left_out


def test_what_was_left_out_is_counted_and_not_proven_where_it_cannot_be_bounded() -> None:
    result, _, _ = ask(topology="v3:32x32", solver=Unbounded(by_axes))
    assert result.meshes.left_out > 0
    assert result.status == "feasible"
    assert result.bound_s is not None
    assert result.bound_s < result.tried_bound_s
    assert any("left out" in note for note in notes(result))


def test_a_plan_above_the_limit_is_solved_again_with_less() -> None:
    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        found = written(layouts, plan, workload, **options)
        more = replace(found.estimate, peak_bytes=found.estimate.peak_bytes + 100)
        return SimpleNamespace(plan=found.plan, estimate=more)

    result, solver, _ = ask(text="mesh: {a: 8, b: 4}\nlimits: {hbm: 8050 B}", minimise=minimise)
    assert result.plan is None
    assert [task.limit_bytes for task in solver.tasks[:2]] == [8050, 8000]


def test_a_bound_that_a_plan_is_below_proves_nothing() -> None:
    result, _, _ = ask(solver=FakeSolver(lambda plan: (2 * by_axes(plan)[0], by_axes(plan)[1])))
    assert result.status == "feasible"
    assert result.gap > 0.5


def test_bounds_fall_by_what_a_plan_below_one_takes_less_than_its_layouts_cost() -> None:
    class Pinned(FakeSolver):
        def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
            found = super().__call__(task, stop)
            return found if "batch" not in task.pins else replace(found, bound_s=found.bound_s - 0.01, credit_s=0.02)

    solver = Pinned(lambda plan: (1.2 * by_axes(plan)[0], by_axes(plan)[1]))
    lies = {"batch": ((), ()), "params/w": (("a:(1)4",), ())}  # no program has a part of an axis
    result, _, _ = ask(text="mesh: {a: 8, b: 4}", solver=solver, lies=lies)
    less_s = 1.2 / 8 + 0.01 - result.step_time_s
    assert (result.status, result.step_time_s) == ("feasible", 1 / 8)
    assert result.bound_s == pytest.approx(1.2 / 8 - less_s)
    assert [task.pins for task in solver.tasks if task.pins] == [{"batch": ((), ())}]


def test_bounds_fall_by_twice_as_much_as_they_are_seen_to_be_too_high_where_costs_do_not_tell_it() -> None:
    class Pinned(FakeSolver):
        def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
            found = super().__call__(task, stop)
            return found if "batch" not in task.pins else replace(found, bound_s=0.13)

    solver = Pinned(lambda plan: (1.2 * by_axes(plan)[0], by_axes(plan)[1]))
    result, _, _ = ask(text="mesh: {a: 8, b: 4}", solver=solver, lies={"batch": ((), ())})
    told_s = 1.2 / 8 - (0.13 - 1 / 8)
    assert (result.status, result.step_time_s) == ("feasible", 1 / 8)
    assert result.bound_s == pytest.approx(told_s - 2 * (told_s - 1 / 8))


@pytest.mark.parametrize(("least_s", "best_s"), [(0.1, 0.1), (0.13, 0.125)])
def test_what_is_found_to_be_better_beside_a_plan_is_written_too(least_s: float, best_s: float) -> None:
    """Pinned to the layouts of a plan below its bound, the program is solved to others."""
    beside = {"batch": (("a",), ())}

    class Pinned(FakeSolver):
        def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
            found = super().__call__(task, stop)
            return found if "batch" not in task.pins else replace(found, objective_s=least_s, layouts=beside)

    def minimise(layouts: Any, plan: Plan, workload: FakeStep, **options: Any) -> Any:
        made = written(layouts, plan, workload)
        return replaced(made, least_s) if layouts == beside else made

    solver = Pinned(lambda plan: (1.2 * by_axes(plan)[0], by_axes(plan)[1]))
    result, _, _ = ask(text="mesh: {a: 8, b: 4}", solver=solver, lies={"batch": ((), ())}, minimise=minimise)
    assert result.step_time_s == best_s
    assert result.bound_s <= best_s


def test_what_is_found_to_be_better_beside_a_plan_lies_over_its_axes() -> None:
    """A plan's axes have other names than those of the mesh that was solved, and may be fewer."""
    others: list[tuple[set[str], set[str]]] = []

    class Pinned(FakeSolver):
        def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
            found = super().__call__(task, stop)
            return replace(found, objective_s=0.01) if "params/w" in task.pins else found

    def minimise(layouts: Any, plan: Plan, workload: FakeStep, **options: Any) -> Any:
        used = {axis for lies in layouts.values() for axes in lies for axis in axes}
        others.append((used, set(plan.mesh.sizes)))
        return written(layouts, plan, workload)

    solver = Pinned(lambda plan: (1.2 * by_axes(plan)[0], by_axes(plan)[1]))
    ask(solver=solver, lies={"params/w": (("data",), ())}, minimise=minimise)
    assert any("params/w" in task.pins for task in solver.tasks)
    assert all(used <= axes for used, axes in others)


def replaced(made: Any, step_time_s: float) -> Any:
    """What was written, at another price."""
    return SimpleNamespace(plan=made.plan, estimate=FakeEstimate(step_time_s, made.estimate.peak_bytes))


def test_a_mesh_that_is_given_stays() -> None:
    result, _, _ = ask(text="mesh: {a: 4, b: {size: 8, over: [y, core]}}")
    assert result.plan.mesh == loads("meshwright: 1\nmesh: {a: 4, b: {size: 8, over: [y, core]}}").mesh
    assert result.plan.result.pins == ("mesh",)


def test_every_remat_policy_is_tried_unless_one_is_pinned() -> None:
    def prices(plan: Plan) -> tuple[float, int]:
        return (2.0, 10) if plan.remat else (1.0, 10**12)

    class Solver(FakeSolver):
        def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
            return replace(super().__call__(replace(task, limit_bytes=None), stop), bound_s=1.0)

    text, always = "mesh: {a: 32}\nlimits: {hbm: 1 GiB}", Solver(lambda plan: (1.0, 10))
    result, _, _ = ask(prices, text, policies=("none", "full"), solver=always)
    assert result.plan.remat == Remat(policy="full")
    pinned, _, _ = ask(prices, text + "\nremat: dots", policies=("none", "full"), solver=always)
    assert pinned.plan.remat == Remat(policy="dots")


def test_names_of_policies() -> None:
    for name in ("none", "full", "dots", "save:a+b"):
        assert policy_name(policy_of(name)) == name


def test_a_complete_plan_comes_back_with_its_price_and_the_optimum() -> None:
    result, _, _ = ask(text='mesh: {a: 8, b: 4}\ntensors: {"**": replicate}')
    assert (result.step_time_s, result.status) == (1 / 8, "feasible")
    assert result.optimum.step_time_s == 1 / 32
    assert result.gap == 0.75
    assert result.plan.rules == loads('meshwright: 1\nmesh: {a: 8, b: 4}\ntensors: {"**": replicate}').rules
    assert any("leaves nothing open" in note for note in notes(result))


def test_a_complete_plan_is_its_own_optimum_where_nothing_better_is_found() -> None:
    def slow(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        return SimpleNamespace(plan=written(layouts, plan, workload).plan, estimate=FakeEstimate(1.0, 5))

    result, _, _ = ask(text='mesh: {a: 8, b: 4}\ntensors: {"**": replicate}', minimise=slow)
    assert result.optimum.step_time_s == result.step_time_s == 1 / 8
    assert result.optimum.plan.rules == result.plan.rules


def test_a_complete_plan_that_does_not_fit() -> None:
    result, _, _ = ask(text='mesh: {a: 8, b: 4}\ntensors: {"**": replicate}\nlimits: {hbm: 5000 B}')
    assert result.status == "infeasible"
    assert result.plan is not None
    assert "does not fit; as given, a step would take 125" in headline(result)
    assert "a device would need" in headline(result)
    assert result.optimum is not None


def test_a_complete_plan_that_does_not_fit_is_compared_with_nothing_where_there_is_no_time() -> None:
    """To search a step is to read it once more, which takes as long as pricing the plan did."""

    def slow(plan: Plan) -> tuple[float, int]:
        time.sleep(0.2)
        return by_axes(plan)

    text = 'mesh: {a: 8, b: 4}\ntensors: {"**": replicate}\nlimits: {hbm: 5000 B}'
    result, solver, _ = ask(slow, text=text, time_limit_s=0.3)
    assert (result.status, result.optimum, solver.tasks) == ("infeasible", None, [])
    assert (result.step_time_s, result.gap) == (1 / 8, None)
    assert result.misfit.missing_bytes > 0
    assert headline(result).startswith("infeasible: the plan does not fit")
    assert (result.plan.result.bound_s, result.plan.result.gap) == (None, None)
    assert "There was no time to look for plans without its pins." in list(notes(result))
    json.dumps(result.as_json())


def test_infeasible_says_by_how_much_and_what_would_help() -> None:
    result, _, _ = ask(text="mesh: {a: 8, b: 4}\ntensors: {batch: N@a ...}\nlimits: {hbm: 7000 B}")
    assert (result.status, result.plan, result.step_time_s) == ("infeasible", None, None)
    assert (result.misfit.least_bytes, result.misfit.missing_bytes) == (8000, 1000)
    assert result.misfit.tensors == (("params/w", 7),)
    changes = {remedy.change: remedy for remedy in result.misfit.remedies}
    assert changes["give up the mesh ('mesh: auto')"].peak_bytes <= 7000
    assert "1,000 bytes more" in misfit_text(result.misfit)
    assert [table.title for table in tables(result)][-1] == "What makes it fit, each tried"
    assert headline(result).startswith("infeasible")
    json.dumps(result.as_json())


def test_nothing_found_is_unknown_and_not_infeasible() -> None:
    nothing = FakeSolver(lambda plan: (math.inf, 0))
    result, _, _ = ask(lambda plan: (1.0, 10**12), solver=nothing, text="mesh: {a: 32}")
    assert (result.status, result.plan) == ("unknown", None)
    assert headline(result).startswith("nothing was found")


def test_alternatives_differ_and_follow_in_price() -> None:
    result, _, _ = ask(top_k=3)
    prices = [result.step_time_s, *(other.step_time_s for other in result.alternatives)]
    assert len(prices) == 3
    assert prices == sorted(prices)
    assert len({(other.plan.mesh, other.plan.rules) for other in result.alternatives}) == 2
    assert all(other.plan.result is not None for other in result.alternatives)
    others = next(table for table in tables(result) if table.title == "Other plans")
    assert [row[0] for row in others.rows] == ["2", "3"]
    assert [row[3] for row in others.rows] == [f"{price / prices[0]:.1%}" for price in prices[1:]]


@pytest.mark.parametrize("more", [{"top_k": 3}, {"pareto": True}])
def test_the_best_is_proven_as_without_other_plans(more: dict[str, Any]) -> None:
    """A mesh is solved for as long as without others, and below the best plan; for others it is solved once more."""
    given: list[tuple[float, float]] = []

    class Noting(FakeSolver):
        def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
            given.append((task.time_limit_s, task.cutoff_s))
            return super().__call__(task, stop)

    found = []
    for options in ({}, more):
        given.clear()
        result, _, _ = ask(solver=Noting(by_axes, bound=0.9), time_limit_s=30.0, **options)
        found.append((result.step_time_s, result.bound_s, len(result.candidates), list(given)))
    (alone_s, alone_bound_s, _, alone), (best_s, bound_s, _, beside) = found
    assert best_s == alone_s
    assert bound_s == alone_bound_s
    assert len(beside) > len(alone)
    for (one_s, one_cutoff_s), (other_s, other_cutoff_s) in zip(alone, beside, strict=False):
        assert other_s == pytest.approx(one_s, rel=0.02)
        assert other_cutoff_s == one_cutoff_s


def test_what_splits_nothing_is_the_same_on_any_mesh() -> None:
    said = [
        ("{a: 8}", "replicate"),
        ("{a: 2, b: 4}", "replicate"),
        ("{a: 8}", "_@a"),
        ("{b: 8}", "_@b"),
    ]
    text = "meshwright: 1\nmesh: {}\ntensors: {{batch: {}}}\n"
    plans = [PricedPlan(plan=loads(text.format(*each)), estimate=FakeEstimate(1.0, 5)) for each in said]
    assert differing_plans(plans) == [plans[0], plans[2], plans[3]]


def test_plans_whose_rules_only_stand_in_another_order_do_not_differ() -> None:
    rules = ["params/**: replicate", "batch: replicate"]
    texts = (f"meshwright: 1\nmesh: {{a: 2}}\ntensors: {{{', '.join(said)}}}\n" for said in (rules, rules[::-1]))
    plans = [PricedPlan(plan=loads(text), estimate=FakeEstimate(1.0, 5)) for text in texts]
    assert differing_plans(plans) == plans[:1]


def test_a_given_mesh_has_alternatives_too() -> None:
    count = iter(range(100))

    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        found = written(layouts, plan, workload, **options)
        return SimpleNamespace(plan=found.plan, estimate=FakeEstimate(1 / 8 + next(count), 5))

    result, _, _ = ask(text="mesh: {a: 8, b: 4}", top_k=2, minimise=minimise)
    assert [other.plan.rules[0].pattern for other in result.alternatives] == ["batch"]


def test_where_the_time_is_over_at_once_the_best_plan_by_hand_is_the_answer() -> None:
    """And not the one whose arguments take least."""

    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        split = {path.split("/")[0] for path, lies in layouts.items() if any(lies)}
        took_s = 2.0 if "params" in split else 1.0 if split else 9.0
        return SimpleNamespace(plan=written(layouts, plan, workload).plan, estimate=FakeEstimate(took_s, 5))

    result, solver, _ = ask(text="mesh: {a: 32}", minimise=minimise, time_limit_s=1e-6)
    assert solver.tasks == []
    assert result.step_time_s == 1.0


def test_the_frontier_has_less_memory_at_every_point() -> None:
    result, _, _ = ask(pareto=True)
    peaks = [point.peak_bytes for point in result.frontier]
    assert peaks == [32000, 16000, 8000, 4000]
    assert [point.step_time_s for point in result.frontier] == [1 / 32, 1 / 16, 1 / 8, 1 / 4]


def test_the_best_plan_is_the_answer_wherever_it_was_found() -> None:
    """As when the time ended before all meshes were tried: under a lower limit a better plan is met."""
    prices = iter([(9.0, 1000), (9.0, 900), (9.0, 850), (8.0, 700), (2.0, 550), *[(4.0, 300)] * 50])

    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        step_time_s, mega = next(prices)
        own = Rule(pattern=f"params/{mega}", assignment=Replicate())
        plan = replace(written(layouts, plan, workload, **options).plan, rules=(own,))
        return SimpleNamespace(plan=plan, estimate=FakeEstimate(step_time_s, mega * 10**6))

    result, _, _ = ask(text="mesh: {a: 32}", minimise=minimise, solver=FakeSolver(lambda plan: (8.0, 10)), pareto=True)
    assert result.step_time_s == 2.0
    assert [point.step_time_s for point in result.frontier] == [2.0, 4.0]
    assert result.bound_s is not None
    assert result.bound_s <= 2.0


def test_alternatives_are_slower_than_the_answer_wherever_that_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def quicker(question: Question, found: Answer, means: Means, clock: Clock) -> tuple[PricedPlan, ...]:
        return tuple(
            PricedPlan(
                plan=replace(found.best.plan, rules=(Rule(pattern=name, assignment=Replicate()),)), estimate=took
            )
            for name, took in (("a", FakeEstimate(0.02, 10)), ("b", FakeEstimate(0.01, 20)))
        )

    monkeypatch.setattr("meshwright.planner.search.search.alternatives", quicker)
    result, _, _ = ask(top_k=3)
    assert result.step_time_s == 0.01
    assert [one.step_time_s for one in result.alternatives] == [0.02, 1 / 32]


def test_progress_is_told() -> None:
    told: list[Progress] = []
    ask(on_progress=told.append, minimise=dearer_by_hand())
    assert told[-1].total == told[-1].tried
    assert told[-1].best_s == 1 / 32
    assert {state.doing.split()[0] for state in told if state.doing} >= {"pricing", "solving", "solved", "writing"}


class CompilingFirst:
    """Gives its answers only when its solver is compiled, which takes longer than a search has."""

    workers = 1

    def __init__(self, seconds: float) -> None:
        self.ready = time.monotonic() + seconds
        self.here = Here(lambda: False, FakeSolver(by_axes))

    @property
    def compiling(self) -> bool:
        return time.monotonic() < self.ready

    def submit(self, task: Task, tell: Tell | None = None) -> Future[Found]:
        later: Future[Found] = Future()
        found = self.here.submit(task, tell).result()
        Timer(max(0.0, self.ready - time.monotonic()), lambda: later.set_result(found)).start()
        return later

    def hurry(self) -> None:
        """It does not."""

    def close(self) -> None:
        """There is nothing to end."""


def test_the_time_that_compiling_takes_does_not_count() -> None:
    pool = CompilingFirst(1.0)
    result, _, _ = ask(text="mesh: {a: 32}", pool=lambda: pool, time_limit_s=0.5, minimise=dearer_by_hand())
    assert (result.status, result.step_time_s) == ("optimal", 1 / 32)


class TellingFirst:
    """Tells of layouts at once, and answers with its solver's when these are ``begun`` to be written."""

    workers, compiling = 1, False

    def __init__(self, layouts: Any, begun: Event) -> None:
        self.layouts, self.begun, self.answered = layouts, begun, Event()
        self.here = Here(lambda: False, FakeSolver(lambda plan: (1.0, 10)))

    def submit(self, task: Task, tell: Tell | None = None) -> Future[Found]:
        later: Future[Found] = Future()
        found = self.here.submit(task).result()
        if tell is not None:
            tell(First(objective_s=1.0, layouts=self.layouts))

        def answer() -> None:
            assert self.begun.wait(20)
            later.set_result(found)
            self.answered.set()

        Thread(target=answer, daemon=True).start()
        return later

    def hurry(self) -> None:
        """It does not."""

    def close(self) -> None:
        """There is nothing to end."""


@pytest.mark.parametrize("is_best", [True, False])
def test_what_is_found_first_is_written_while_it_is_proven(is_best: bool) -> None:
    """And is the plan where it is the best, which the step is told of; else it is left, and the best is written."""
    best = {"params/w": (("a",), ()), "batch": ((), ())}
    told = best if is_best else {"params/w": ((), ("a",)), "batch": ((), ())}
    pool = TellingFirst(told, Event())
    tries: list[Any] = []

    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        if options["deadline"] == 0:  # by hand
            return SimpleNamespace(plan=plan, estimate=FakeEstimate(8.0, 10))
        tries.append((layouts, options["begun"] is not None))
        if options["begun"] is not None:
            return options["begun"]
        pool.begun.set()
        assert pool.answered.wait(20)
        return written(layouts, plan, workload)

    result, _, step = ask(lambda plan: (1.0, 10), text="mesh: {a: 32}", pool=lambda: pool, minimise=minimise)
    assert (result.status, result.step_time_s) == ("optimal", 1.0)
    assert tries == [(told, False), (best, is_best)]
    assert result.plan is not None
    assert [plan.rules for plan in step.foreseen] == ([result.plan.rules] if is_best else [])


class TellingTwice(TellingFirst):
    """Tells of what its solver answers as well, while what it told first is being written."""

    def __init__(self, layouts: Any, better: Any) -> None:
        super().__init__(layouts, Event())
        self.better = better

    def submit(self, task: Task, tell: Tell | None = None) -> Future[Found]:
        self.tell = tell
        return super().submit(task, tell)

    def find_better(self) -> None:
        self.tell(First(objective_s=0.5, layouts=self.better))


def test_what_is_found_first_is_left_for_what_is_told_to_be_better_and_that_is_written() -> None:
    better, worse = {"params/w": (("a",), ()), "batch": ((), ())}, {"params/w": ((), ("a",)), "batch": ((), ())}
    pool = TellingTwice(worse, better)
    pool.here = Here(lambda: False, FakeSolver(lambda plan: (0.5, 10)))
    tries: list[Any] = []

    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        if options["deadline"] == 0:  # by hand
            return SimpleNamespace(plan=plan, estimate=FakeEstimate(8.0, 10))
        tries.append((layouts, options["begun"] is not None))
        if options["begun"] is not None:
            return options["begun"]
        if layouts == worse:
            pool.find_better()
        else:
            pool.begun.set()
            assert pool.answered.wait(20)
        return written(layouts, plan, workload)

    result, _, _ = ask(lambda plan: (0.5, 10), text="mesh: {a: 32}", pool=lambda: pool, minimise=minimise)
    assert (result.status, result.step_time_s) == ("optimal", 0.5)
    assert tries == [(worse, False), (better, False), (better, True)]


def test_a_search_that_is_stopped_keeps_its_best() -> None:
    asked = iter(range(10**6))
    result, solver, _ = ask(stop=lambda: next(asked) > 8)
    assert result.interrupted
    assert result.plan is not None
    assert len(solver.tasks) < 14


def test_gaps() -> None:
    assert (gap_of(2.0, 1.0), gap_of(1.0, 2.0), gap_of(math.inf, 1.0)) == (0.5, 0.0, math.inf)


@pytest.mark.parametrize(("each_s", "priced"), [(0.01, 3), (0.25, 2), (0.9, 1)])
def test_soon_after_the_time_is_over_plans_by_hand_are_priced_as_long_as_they_end_soon(
    each_s: float, priced: int
) -> None:
    def minimise(layouts: Any, plan: Plan, workload: Any, **options: Any) -> Any:
        time.sleep(each_s)
        return written(layouts, plan, workload, **options)

    result, solver, step = ask(text="mesh: {a: 32}", minimise=minimise, time_limit_s=1e-6)
    assert result.status == "feasible"
    assert not solver.tasks
    assert len(step.priced) == priced


def test_of_a_large_step_nothing_is_priced_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("meshwright.planner.search.board.LARGE", 0)
    result, _, step = ask(text="mesh: {a: 32}\nlimits: {hbm: 1600 B}", time_limit_s=1e-6)
    assert (result.status, result.plan) == ("unknown", None)
    assert not step.priced
    assert headline(result).startswith("nothing was found in")


def test_a_clock_has_longer_until_something_is_found() -> None:
    clock = Clock(0.0, longer_s=60.0)
    assert not clock.over
    assert clock.part(0.5).left_s == pytest.approx(30.0, abs=0.1)
    assert clock.part(0.5, as_found=True).over
    assert clock.end == pytest.approx(time.monotonic() + 60.0, abs=0.1)
    other = Clock(0.0)
    other.until(clock)
    assert other.left_s == pytest.approx(60.0, abs=0.1)
    clock.found()
    assert clock.over
    clock.until(other)
    assert clock.left_s == pytest.approx(60.0, abs=0.1)


class Slow(FakeSolver):
    """Needs half a second."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        if task.time_limit_s < 0.5:
            return Found(status="unknown", objective_s=math.inf, bound_s=0.0, ended=True)
        return super().__call__(task, stop)


@pytest.mark.parametrize(("last_s", "is_found"), [(None, False), (0.3, False), (20.0, True)])
def test_a_search_that_has_found_nothing_goes_on_beyond_its_time(
    monkeypatch: pytest.MonkeyPatch, last_s: float | None, is_found: bool
) -> None:
    """Of a large step, of which nothing is priced beside."""
    monkeypatch.setattr("meshwright.planner.search.board.LARGE", 0)
    options = {"text": "mesh: {a: 32}\nlimits: {hbm: 40 KB}", "solver": Slow(by_axes), "time_limit_s": 0.2}
    result, _, _ = ask(**options, last_s=last_s)
    assert (result.status == "optimal") == is_found


class SlowAfterTwo(Slow):
    """Needs no time for what it is asked before a plan is written."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        solve = super().__call__ if len(self.tasks) > 1 else functools.partial(FakeSolver.__call__, self)
        return solve(task, stop)


def test_a_search_goes_on_into_the_time_for_the_compiler_where_the_best_plan_is_not_near_the_limit() -> None:
    def finer(plan: Plan) -> tuple[float, int]:
        seconds, _ = by_axes(plan)
        return 1 / seconds, 30_000

    def step_time_s(limit: str) -> float:
        options = {"text": f"mesh: auto\nlimits: {{hbm: {limit}}}", "time_limit_s": 0.2, "last_s": 20.0}
        result, _, _ = ask(finer, solver=SlowAfterTwo(finer), **options)
        return result.step_time_s

    assert [step_time_s("40 KB"), step_time_s("400 KB")] == [16.0, 4.0]


def test_as_long_as_nothing_is_found_of_a_large_step_each_candidate_has_more_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("meshwright.planner.search.board.LARGE", 0)
    options = {"text": "mesh: auto\nlimits: {hbm: 9000 B}", "time_limit_s": 60.0}
    _, solver, _ = ask(**options, solver=Unbounded(by_axes))
    first, second, third, *_ = solver.tasks
    assert first.time_limit_s == pytest.approx(0.75 * 0.75 * 60, rel=0.05)
    assert [by_axes(Plan(mesh=task.mesh))[1] > 9000 for task in (first, second)] == [True, True]
    tasks = [task for task in solver.tasks if not task.alike]
    after = next(task for task in tasks if task.cutoff_s < math.inf)
    assert after.time_limit_s == pytest.approx(0.5 * 60, rel=0.05)  # written, which took no time
    assert third.time_limit_s > after.time_limit_s


def test_of_meshes_that_nobody_looks_at_all_have_to_be_bounded_for_a_proof() -> None:
    """One that is alone of its sizes too; none where some have other axes than are bounded together."""
    result, solver, _ = ask(topology="v5p:4x4x4")
    bounded = [task for task in solver.tasks if task.alike]
    assert result.meshes.left_out > 0
    assert result.status == "optimal"
    machine = physical(parse_topology("v5p:4x4x4"))
    fine = [folding for folding in foldings(machine) if len(folding.axes) == 3]
    assert {tuple(sorted(f.sizes)) for f in fine} == {tuple(sorted(task.mesh.sizes.values())) for task in bounded}
    one = Mesh(axes=(Axis(name="x", size=8), Axis(name="y", size=4), Axis(name="z", size=2)))
    few = Mesh(axes=(Axis(name="x", size=8), Axis(name="y", size=8)))
    tried = Tried(candidate=SimpleNamespace(pins={}, policy=0, plan=Plan(mesh=few)), bound_s=0.0)
    (alone,) = alike([tried], [one])
    assert (alone.members, alone.unlisted, alone.sizes) == ([tried], [one], (8, 4, 2))
    assert alike([tried], [one, few]) == []


def test_where_nothing_is_found_each_mesh_is_solved_whole() -> None:
    _, solver, _ = ask(text="mesh: auto\nlimits: {hbm: 3500 B}")
    without = [task for task in solver.tasks if task.limit_bytes == 3500]
    assert any(len(task.mesh.sizes) == 3 for task in without)
    assert not any(task.alike or task.partly for task in without)
