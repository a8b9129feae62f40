"""Why nothing fits, and what would: each remedy is a plan that fits when it is followed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from fake_search import FakeEstimate, FakeSolver, FakeStep, ask, by_axes
from in_process import search
from meshwright.dsl.plan import Axis, Limits, Mesh, Plan, Remat, Replicate
from meshwright.dsl.reader import loads
from meshwright.planner.search.board import Board
from meshwright.planner.search.by_hand import BY_HAND
from meshwright.planner.search.candidates import Candidate
from meshwright.planner.search.driver import _least_promised, _lowered
from meshwright.planner.search.misfit import _changes, _larger
from meshwright.planner.search.question import Question
from meshwright.planner.search.report import misfit_text, tables
from meshwright.planner.search.result import Misfit, PricedPlan
from meshwright.planner.search.search import CHANGED_S, LEAST_HELPED_S
from meshwright.planner.search.task import Found, Near, Task
from meshwright.planner.search.tried import Tried
from meshwright.planner.topology import physical

MIB = 2**20


def as_asked(layouts: object, plan: Plan, workload: FakeStep, **options: object) -> SimpleNamespace:
    return SimpleNamespace(plan=plan, estimate=workload.estimate(plan))


def test_pins_that_alone_exceed_the_limit_are_named() -> None:
    whole = lambda plan: (1.0, 20_000 if plan.rules and plan.rules[0].assignment == Replicate() else 8000)  # noqa: E731
    text = "mesh: {a: 8, b: 4}\ntensors: {batch: replicate}\nlimits: {hbm: 10 KiB}"
    result, _, _ = ask(whole, text=text, minimise=as_asked)
    assert result.status == "infeasible"
    changes = {remedy.change: remedy for remedy in result.misfit.remedies}
    assert changes["give up the pin 'batch'"].peak_bytes == 8000
    assert next(row.why for row in result.candidates) == "no layouts fit the limit"


@pytest.mark.parametrize(("policy", "asked"), [("none", True), ("full", True), ("auto", False)])
def test_a_pinned_policy_is_given_up_too(policy: str, asked: bool) -> None:
    plan = replace(loads("meshwright: 1\ntopology: v3:4x4\nmesh: {a: 32}\n"), remat=Remat(policy=policy))
    step = FakeStep(by_axes, ("none", "full"))
    question = Question(plan=plan, workload=step, machine=physical(plan.topology), limit_bytes=1)
    said = [change for change, _ in _changes(question)]
    assert any("remat: auto" in change for change in said) == asked
    assert "give up the mesh ('mesh: auto')" in said


def test_more_memory_than_the_chip_has_is_said_to_be() -> None:
    huge = lambda plan: (1.0, 40 * 2**30)  # noqa: E731
    result, _, _ = ask(huge, text="mesh: {a: 32}\nlimits: {hbm: 1 GiB}")
    assert "more than v3 has, which is" in result.misfit.remedies[0].change


def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
    return jnp.mean((jax.nn.relu(x @ params["w"]) @ params["v"]) ** 2)


def step(params: dict[str, jax.Array], batch: jax.Array) -> tuple[dict[str, jax.Array], jax.Array]:
    value, gradients = jax.value_and_grad(loss)(params, batch)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def test_remedies_of_a_real_step_work_when_followed() -> None:
    params = {name: jax.ShapeDtypeStruct((1024, 1024), jnp.float32) for name in "wv"}
    args = (params, jax.ShapeDtypeStruct((4096, 1024), jnp.float32))
    text = "meshwright: 1\ntopology: v5e:2x2\nmesh: {a: 4}\ntensors: {params/w: replicate, params/v: replicate}\n"
    asked = replace(mw.loads(text), limits=Limits(hbm_bytes=16 * MIB))
    result = search(step, args, plan=asked, time_limit_s=60, ask_compiler=False)
    found = result.misfit
    assert (result.status, found.limit_bytes) == ("infeasible", 16 * MIB)
    assert found.missing_bytes > 0
    assert sum(found.bytes_by_kind.values()) == found.least_bytes
    assert "marks no blocks" in misfit_text(found)
    assert {"What makes it fit, each tried"} <= {table.title for table in tables(result)}
    more, *others = found.remedies
    assert f"{max(found.least_bytes, more.compiled_bytes or 0):,} bytes" in more.change
    assert more.plan.limits.hbm_bytes == max(found.least_bytes, more.compiled_bytes or 0)
    assert mw.estimate(more.plan, step, args).fits
    assert ", predicted, is " in misfit_text(found)
    assert "give up all pins of tensors" in [remedy.change for remedy in others]
    for remedy in others:
        price = mw.estimate(remedy.plan, step, args)
        assert (price.step_time_s, price.peak_bytes) == (remedy.step_time_s, remedy.peak_bytes)
        assert price.fits
    freed = replace(asked, rules=(), mesh=Mesh(axes=asked.mesh.axes))
    assert search(step, args, plan=freed, time_limit_s=60, ask_compiler=False).plan is not None


def test_a_plan_that_fits_after_all_is_the_answer() -> None:
    """The program counts twice the memory that the plan takes: what it calls proven is not."""
    double = FakeSolver(lambda plan: (by_axes(plan)[0], 2 * by_axes(plan)[1]))
    result, _, _ = ask(text="mesh: {a: 8, b: 4}\nlimits: {hbm: 9000 B}", solver=double)
    assert (result.status, result.peak_bytes) == ("feasible", 8000)
    assert result.bound_s < result.step_time_s
    assert result.misfit is None


class Lowest(FakeSolver):
    """Finds what takes least when it is asked for that alone."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        if not task.lowest:
            return super().__call__(task, stop)
        seconds, num_bytes = self.prices(Plan(mesh=task.mesh))
        least = super().__call__(task, stop).layouts
        return Found(
            status="unknown",
            objective_s=seconds,
            bound_s=0.0,
            least=least,
            least_bytes=num_bytes,
            proven_bytes=7000,
            anywhere_bytes=3000,
        )


def test_what_nothing_takes_less_than_is_said() -> None:
    text = "mesh: {a: 8, b: 4}\nlimits: {hbm: 1000 B}"
    result, _, _ = ask(text=text, solver=Lowest(by_axes))
    assert result.misfit.proven_bytes == 7000
    assert "no plan takes less than 6.84 KiB (7,000 bytes)" in misfit_text(result.misfit)
    open_result, _, _ = ask(text="limits: {hbm: 1000 B}", solver=Lowest(by_axes))
    assert 3000 <= open_result.misfit.proven_bytes <= open_result.misfit.least_bytes


def test_what_takes_least_is_looked_for_and_not_searched_for() -> None:
    solver = Lowest(by_axes)
    result, _, _ = ask(text="mesh: {a: 8, b: 4}\nlimits: {hbm: 1000 B}", solver=solver)
    assert (result.status, result.misfit.least_bytes) == ("infeasible", 8000)
    assert [task.limit_bytes for task in solver.tasks if task.lowest] == [None]
    assert result.misfit.remedies[0].is_memory
    assert result.misfit.remedies[0].peak_bytes == 8000


def test_of_what_is_proven_not_to_fit_it_is_looked_for_seconds_what_would_help() -> None:
    solver = Lowest(by_axes)
    ask(text="mesh: {a: 8, b: 4}\nlimits: {hbm: 1000 B}", solver=solver, time_limit_s=600.0)
    assert 0 < max(task.time_limit_s for task in solver.tasks if task.lowest) <= LEAST_HELPED_S


def test_what_was_asked_is_given_up_in_most_of_the_time_for_what_helps() -> None:
    """Of a pin, the mesh and both looking for what takes least leaves more than half."""
    solver = Lowest(by_axes)
    text = "mesh: {a: 8, b: 4}\ntensors: {batch: replicate, params/**: auto}\nlimits: {hbm: 1000 B}"
    ask(text=text, solver=solver, time_limit_s=600.0)
    helped_s = LEAST_HELPED_S + 2 * CHANGED_S
    assert 0 < max(task.time_limit_s for task in solver.tasks if task.lowest) <= helped_s / 4


@pytest.mark.parametrize(
    ("topology", "larger"),
    [
        ("v3:2x2", ["v3:4x2", "v3:4x4", "v3:8x4"]),
        ("v5e:16x16", ["2*v5e:16x16", "4*v5e:16x16", "8*v5e:16x16"]),
        ("h100:4", ["h100:8", "h100:8x2", "h100:8x4"]),
    ],
)
def test_where_one_machine_has_no_more_chips_several_are_joined(topology: str, larger: list[str]) -> None:
    asked = loads(f"meshwright: 1\ntopology: {topology}\n").topology
    assert asked is not None
    assert [str(each) for each in _larger(asked)] == larger


class Slow(FakeSolver):
    """Sees what takes less than others on the way into the limit; looking for still less takes all the time."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        self.tasks.append(task)
        if task.lowest:
            time.sleep(2 * task.time_limit_s)
        least = {"params/w": (("b",), ()), "batch": ((), ())}
        return Found(status="unknown", objective_s=math.inf, bound_s=0.1, least=least, least_bytes=7000)


def test_what_was_seen_to_take_least_is_written_before_less_is_looked_for() -> None:
    def minimise(layouts: Mapping[str, object], plan: Plan, workload: FakeStep, **options: object) -> SimpleNamespace:
        is_least = layouts["params/w"] == (("b",), ())
        return SimpleNamespace(plan=plan, estimate=FakeEstimate(1.0, 7000 if is_least else 9000))

    text = "mesh: {a: 8, b: 4}\nlimits: {hbm: 2000 B}"
    result, _, _ = ask(text=text, solver=Slow(by_axes), minimise=minimise, time_limit_s=2.0)
    assert (result.status, result.misfit.least_bytes) == ("unknown", 7000)


@pytest.mark.parametrize("num_bytes", [8000, 900])
def test_where_the_time_is_over_a_plan_by_hand_says_what_is_missing(num_bytes: int) -> None:
    """Nothing of the least memory was seen on the way to a proof that took all the time; it may be wrong."""
    solver = FakeSolver(lambda plan: (by_axes(plan)[0], 8000))
    price = FakeEstimate(1.0, num_bytes)
    result, _, _ = ask(
        text="mesh: {a: 8, b: 4}\nlimits: {hbm: 1000 B}",
        solver=solver,
        minimise=lambda layouts, plan, workload, **options: SimpleNamespace(plan=plan, estimate=price),
        time_limit_s=0.0,
    )
    assert not [task for task in solver.tasks if task.lowest]
    if num_bytes > 1000:
        assert (result.status, result.plan, result.misfit.least_bytes) == ("infeasible", None, 8000)
        assert "7,000 bytes more" in misfit_text(result.misfit)
    else:
        assert (result.status, result.peak_bytes) == ("feasible", 900)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_how_many_chips_would_do_is_said_whatever_the_time(*, is_stopped: bool) -> None:
    """On twice as many devices an axis of the plan of the least memory is twice as large, on whichever it fits."""

    def prices(plan: Plan) -> tuple[float, int]:
        return 1.0, 8000 if plan.mesh.sizes["b"] == 4 else 900

    asked = {"solver": FakeSolver(prices), "time_limit_s": 0.0, "stop": lambda: is_stopped}
    result, _, _ = ask(prices, "mesh: {a: 8, b: 4}\nlimits: {hbm: 1000 B}", **asked)
    grown = [each for each in result.misfit.remedies if "devices" in each.change] if result.misfit else []
    said = [] if is_stopped else ["take v3:8x4, 64 devices, mesh {a: 8, b: 8}"]
    assert [each.change for each in grown] == said
    assert [str(each.plan.topology) for each in grown] == ["v3:8x4"] * len(said)


class Timid(FakeSolver):
    """Finds nothing under limits of less than twice what is needed, and proves nothing."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        self.tasks.append(task)
        least = 2 * by_axes(Plan(mesh=task.mesh))[1]
        if task.limit_bytes is not None and task.limit_bytes < least:
            return Found(status="unknown", objective_s=math.inf, bound_s=0.1)
        return super().__call__(task, stop)


@pytest.mark.parametrize(("limit", "fits"), [(9000, True), (7000, False)])
def test_where_nothing_is_found_what_takes_least_is_said_or_is_the_answer(limit: int, fits: bool) -> None:
    result, _, _ = ask(text=f"mesh: {{a: 8, b: 4}}\nlimits: {{hbm: {limit} B}}", solver=Timid(by_axes))
    if fits:
        assert (result.status, result.peak_bytes, result.misfit) == ("feasible", 8000, None)
        assert result.bound_s == 0.1
    else:
        assert (result.status, result.plan) == ("unknown", None)
        assert (result.misfit.least_bytes, result.misfit.missing_bytes) == (8000, 1000)
        assert result.misfit.remedies
        assert "1,000 bytes more" in misfit_text(result.misfit)


def needing(seconds: float, num_bytes: int) -> Misfit:
    """What is said where the plan of the least memory takes 1 s and 8000 bytes, and what is written for hardly more
    takes this.
    """
    solver, limits = FakeSolver(by_axes), set[int | None]()

    def minimise(layouts: object, plan: Plan, workload: FakeStep, **options: object) -> SimpleNamespace:
        is_roomier = any(task.limit_bytes == 8160 for task in solver.tasks)
        limits.add(plan.limits.hbm_bytes)
        return SimpleNamespace(plan=plan, estimate=FakeEstimate(*((seconds, num_bytes) if is_roomier else (1.0, 8000))))

    result, _, _ = ask(text="mesh: {a: 8, b: 4}\nlimits: {hbm: 1000 B}", solver=solver, minimise=minimise)
    assert result.status == "infeasible"
    assert limits == {1000, 8160}
    assert result.misfit is not None
    return result.misfit


def test_a_plan_within_hardly_more_than_the_least_memory_that_takes_less_is_what_takes_least() -> None:
    misfit = needing(1.0, 6000)
    assert misfit.least_bytes == 6000
    assert misfit.remedies[0].peak_bytes == 6000
    assert "(6,000 bytes)" in misfit.remedies[0].change


@pytest.mark.parametrize(("seconds", "said"), [(0.5, [8000, 8100]), (0.99, [8000])])
def test_what_a_little_more_than_the_least_memory_saves_is_said_too(seconds: float, said: list[int]) -> None:
    misfit = needing(seconds, 8100)
    assert misfit.least_bytes == 8000
    assert [one.peak_bytes for one in misfit.remedies if one.is_memory] == said


class Nowhere(FakeSolver):
    """Proves at once that no mesh holds the step."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        if task.lowest or task.limit_bytes is None or task.limit_bytes > 1000:
            return super().__call__(task, stop)
        self.tasks.append(task)
        return Found(status="infeasible", objective_s=math.inf, bound_s=0.0, anywhere=task.doubted)


def test_what_no_mesh_can_hold_is_proven_of_all_by_one() -> None:
    """Also of meshes that are left out."""
    solver = Nowhere(by_axes)
    result, _, _ = ask(text="mesh: auto\nlimits: {hbm: 1000 B}", topology="v3:32x32", solver=solver)
    assert (result.status, result.bound_s) == ("infeasible", None)
    assert result.meshes.left_out > 0
    assert sum(task.limit_bytes == 1000 for task in solver.tasks) == 1
    assert {row.why.partition(":")[0] for row in result.candidates if row.step_time_s is None} <= {
        "no layouts fit the limit",
        BY_HAND.partition(":")[0],
    }


def test_a_plan_that_fits_takes_a_proof_back_that_no_mesh_holds_its_policy() -> None:
    def tried(index: int, policy: int) -> Tried:
        plan = Plan(mesh=Mesh(axes=(Axis(name="a", size=32),)))
        candidate = Candidate(index=index, plan=plan, policy=policy, pins={}, floor_s=1.0, least_bytes=0)
        return Tried(candidate=candidate, bound_s=1.0)

    first, second, other = several = [tried(0, 0), tried(1, 0), tried(2, 1)]
    board = Board(tried=several)
    for one in (first, other):
        board.rule_out(one)
    assert [each.bound_s for each in several] == [math.inf] * 3
    second.priced = PricedPlan(plan=second.candidate.plan, estimate=FakeEstimate(2.0, 1))
    board.doubt(lambda _: None)
    assert [each.bound_s for each in several] == [1.0, 1.0, math.inf]
    assert [each.anywhere for each in several] == [False, False, True]


@pytest.mark.parametrize(("num_ops", "below", "asks"), [(100, 0.005, True), (2000, 0.005, False), (2000, 0.02, True)])
def test_what_a_plan_costs_is_asked_where_that_is_soon_known_or_much_is_to_be_proven(
    num_ops: int, below: float, asks: bool
) -> None:
    """Else the bound is taken back at once by twice what the plan takes less."""
    plan, asked = Plan(mesh=Mesh(axes=(Axis(name="a", size=32),))), list[Tried]()
    candidate = Candidate(index=0, plan=plan, policy=0, pins={}, floor_s=0.0, least_bytes=0)
    one = Tried(candidate=candidate, bound_s=2.0, floor_s=2.0, solved=True)
    one.priced = PricedPlan(plan=plan, estimate=FakeEstimate(2.0 * (1 - below), 1))
    board = Board(tried=[one], num_ops=num_ops)

    def cost_of(tried: Tried) -> float:
        asked.append(tried)
        return 2.0

    board.doubt(cost_of)
    assert bool(asked) == asks
    assert one.bound_s == pytest.approx(2.0 * (1 - below) if asks else 2.0 * (1 - 2 * below))


def test_what_takes_least_is_looked_for_on_meshes_whose_programs_are_built_in_time() -> None:
    """Of the most promising one and of one that is quicker."""

    def tried(axes: str, remat: str = "full") -> Tried:
        plan = loads(f"meshwright: 1\ntopology: v3:4x4\nmesh: {{{axes}}}\nremat: {remat}\n")
        candidate = Candidate(index=0, plan=plan, pins={}, floor_s=0.0, least_bytes=1)
        return Tried(candidate=candidate, bound_s=math.inf)

    listed = [tried("a: 32"), tried("a: 4, b: 8", "none"), tried("a: 2, b: 4, c: 4"), tried("a: 8, b: 4")]
    assert [one.candidate.plan.mesh.sizes for one in _lowered(listed)] == [{"a": 8, "b": 4}, {"a": 32}]
    assert [one.num_axes for one in _lowered(listed[2:3])] == [3]


def test_what_takes_least_is_looked_for_where_most_is_computed_anew() -> None:
    """Nothing is known of what fits none of the candidates; to compute all blocks anew leaves least."""

    def tried(remat: str) -> Tried:
        plan = loads(f"meshwright: 1\ntopology: v3:4x4\nmesh: {{a: 32}}\nremat: {remat}\n")
        candidate = Candidate(index=0, plan=plan, pins={}, floor_s=0.0, least_bytes=1)
        return Tried(candidate=candidate, bound_s=math.inf)

    several = sorted(map(tried, ("none", "dots", "full")), key=_least_promised)
    assert [one.candidate.remat for one in several] == ["full", "dots", "none"]


class Beside(FakeSolver):
    """Finds what fits, and beside it what takes a little more memory and half of the time."""

    def __call__(self, task: Task, stop: Callable[[], bool]) -> Found:
        found = super().__call__(task, stop)
        layouts = {"params/w": (("b",), ("a",)), "batch": ((), ())}
        return replace(found, near=(Near(peak_bytes=9001, seconds=min(found.objective_s, 1) / 2, layouts=layouts),))


def test_a_plan_near_the_limit_that_does_not_fit_says_how_much_memory_is_needed() -> None:
    """What was found near it is the least that is known where nothing fits."""

    def prices(plan: Plan) -> tuple[float, int]:
        return (0.0625, 9500) if plan.remat is not None else (1.0, 20000)

    def minimise(layouts: Mapping[str, object], plan: Plan, workload: FakeStep, **options: object) -> SimpleNamespace:
        is_near = layouts["params/w"] == (("b",), ("a",))
        plan = replace(plan, remat=Remat(policy="none")) if is_near else plan
        return SimpleNamespace(plan=plan, estimate=FakeEstimate(*prices(plan)))

    solver = Beside(lambda plan: (math.inf, 0))
    result, _, _ = ask(prices, "mesh: {a: 8, b: 4}\nlimits: {hbm: 9000 B}", solver=solver, minimise=minimise)
    assert (result.plan, result.status) == (None, "unknown")
    assert result.misfit is not None
    assert result.misfit.least_bytes == 9500
    assert result.misfit.remedies[0].step_time_s == 0.0625


@pytest.mark.parametrize(("num_bytes", "fits"), [(9000, True), (9001, False)])
def test_layouts_that_take_a_little_more_than_the_limit_are_the_answer_where_their_plan_fits(
    num_bytes: int, fits: bool
) -> None:
    """What does not fit is left as it is: no lower limit is searched for it. Nothing is written to fit at any price."""
    written: list[int | None] = []

    def prices(plan: Plan) -> tuple[float, int]:
        return (0.0625, num_bytes) if plan.remat is not None else by_axes(plan)

    def minimise(layouts: Mapping[str, object], plan: Plan, workload: FakeStep, **options: object) -> SimpleNamespace:
        is_near = layouts["params/w"] == (("b",), ("a",))
        written.extend([plan.limits.hbm_bytes] if is_near else [])
        plan = replace(plan, remat=Remat(policy="none")) if is_near else plan
        return SimpleNamespace(plan=plan, estimate=FakeEstimate(*prices(plan)))

    solver = Beside(by_axes)
    result, _, _ = ask(prices, "mesh: {a: 8, b: 4}\nlimits: {hbm: 9000 B}", solver=solver, minimise=minimise)
    assert (result.step_time_s, result.peak_bytes) == ((0.0625, 9000) if fits else (0.125, 8000))
    assert result.bound_s <= result.step_time_s
    assert {task.limit_bytes for task in solver.tasks} <= {9000, None}
    assert written == ([None] if fits else [None, 9000])
