"""Solutions that do not fit are changed choice by choice until they do."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from meshwright.backends.jax.drafts import Drafts
from meshwright.dsl.reader import loads
from meshwright.planner.graph import Graph
from meshwright.planner.program import Known, Program, build, least_anywhere
from meshwright.planner.program.solving.limited import Limited
from meshwright.planner.program.solving.lowering import Choices, Lowering, Moves
from meshwright.planner.program.solving.solutions import AROUND, ENOUGH, Solutions
from meshwright.planner.program.solving.weighing import weigh
from meshwright.planner.search.task import Solver, Task
from meshwright.planner.topology import physical
from small_graphs import Drawing, exact_of, program_of, promised_s, size_of, steps, strategies
from small_steps import Pair, mlp, shape

FEW = settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
MESHES = (("v5e:2x2", {"x": 2, "y": 2}), ("v3:2x2", {"x": 8}), ("cpu:2", {"x": 2}))
LARGEST = 150
MIB = 1 << 20


@FEW
@given(steps(), st.sampled_from(MESHES), st.data())
def test_a_descent_ends_within_the_limit_or_with_nothing(
    step: tuple[Graph, dict[str, str]], where: tuple[str, dict[str, int]], data: st.DataObject
) -> None:
    graph, returned = step
    program = program_of(graph, *where, returned=returned)
    assume(size_of(program) <= LARGEST)
    every = [each for each in strategies(program) if math.isfinite(promised_s(program, each))]
    peaks = [exact_of(program, each).estimate.peak_bytes for each in every]
    program.limit_bytes = data.draw(st.integers(min(peaks) - 1, max(peaks)))
    begin = data.draw(st.sampled_from(every))
    descent = program.lowering(10_000, lambda: False)
    found = descent.into(np.array(begin)[program.deciders])
    if min(peaks) > program.limit_bytes:
        assert found is None
    if found is None:
        return
    chosen = program.choices(found)
    assert exact_of(program, chosen).estimate.peak_bytes <= program.limit_bytes
    for other in descent.quicker(found):
        choices = program.choices(other)
        assert exact_of(program, choices).estimate.peak_bytes <= program.limit_bytes
        assert promised_s(program, choices) < promised_s(program, chosen)
        more_s = descent.moves.more_s(found, other)
        assert math.isclose(more_s, promised_s(program, choices) - promised_s(program, chosen), abs_tol=1e-12)


def test_so_many_solutions_are_looked_at_and_no_more() -> None:
    graph, returned = _drawn()
    program = program_of(graph, "v5e:2x2", {"x": 2, "y": 2}, returned=returned, limit_bytes=1)
    descent = program.lowering(3, lambda: False)
    assert descent.into(np.array(next(strategies(program)))[program.deciders]) is None
    assert len(descent.known) == 3


def test_what_rows_of_memory_know_too_little_of_is_found_by_its_price() -> None:
    """Copies of what products read are in no row: the program finds nothing under 38 MiB by itself."""
    step, args = mlp(layers=1)
    plan = loads("meshwright: 1\ntopology: v3:2x2\nmesh: {x: 2, y: 4}\ntensors: {}\n")
    assert plan.topology is not None
    workload = Drafts(step, args)
    returned = {each.path: each.returns for each in workload.tensors if each.returns}
    program = build(workload.graph(plan), plan.mesh, physical(plan.topology), returned=returned, limit_bytes=37 * MIB)
    found = program.solve(time_limit_s=120)
    assert found.layouts is not None
    assert found.peak_bytes <= 37 * MIB
    assert found.bound_s <= found.objective_s


def test_a_descent_lowers_one_of_two_points_that_are_as_high() -> None:
    """Neither of two choices lowers the peak alone."""
    sizes = np.array([10, 6])
    moves = Moves([np.zeros(2), np.zeros(2)], {})

    def takes(chosen: Choices) -> Any:
        points = [SimpleNamespace(num_bytes=int(size)) for size in sizes[chosen]]
        tensors = [SimpleNamespace(source=str(node), num_bytes=int(size)) for node, size in enumerate(sizes[chosen])]
        return SimpleNamespace(peak_bytes=int(sizes[chosen].max()), constant_bytes=0, points=points, tensors=tensors)

    descent = Lowering(moves=moves, takes=takes, place=np.arange(2), limit_bytes=6, most=100, ended=lambda: False)
    found = descent.into(np.array([0, 0]))
    assert found is not None
    assert found.tolist() == [1, 1]
    assert descent.least is not None
    assert descent.least[0] == 6


def test_a_descent_changes_several_nodes_where_no_single_one_takes_less() -> None:
    """Two that lie alike hand on nothing; where one alone lies otherwise there is a copy."""
    moves = Moves([np.zeros(2), np.zeros(2)], {(0, 1): np.array([[0.0, 1.0], [1.0, 0.0]])})
    peaks = {(0, 0): 10, (0, 1): 12, (1, 0): 12, (1, 1): 6}

    def takes(chosen: Choices) -> Any:
        peak = peaks[int(chosen[0]), int(chosen[1])]
        return SimpleNamespace(peak_bytes=peak, constant_bytes=0, points=[], tensors=[])

    descent = Lowering(moves=moves, takes=takes, place=np.arange(2), limit_bytes=6, most=100, ended=lambda: False)
    found = descent.into(np.array([0, 0]))
    assert found is not None
    assert found.tolist() == [1, 1]


def test_what_is_looked_for_by_rows_leaves_the_deadline_as_it_was() -> None:
    program = _program(mlp(layers=1), "v3:2x2", "{x: 2, y: 4}", 30 * MIB)
    kept = Solutions(program, time.monotonic() + 60, 0, None, math.inf)
    kept.price(kept.solved(guess=True).choices)
    kept.limit_bytes, deadline = 30 * MIB, kept.deadline
    Limited(kept).look()
    assert kept.count > 1
    assert kept.deadline == deadline


def test_the_least_memory_is_looked_for_within_no_limit() -> None:
    step, args = mlp(layers=1)
    plan = loads("meshwright: 1\ntopology: v3:2x2\nmesh: {x: 2, y: 4}\ntensors: {}\n")
    assert plan.topology is not None
    program = build(Drafts(step, args).graph(plan), plan.mesh, physical(plan.topology))
    found = program.lowest(time_limit_s=120)
    assert found.least is not None
    assert found.peak_bytes <= 37 * MIB


def test_a_limit_is_approached_by_limits_in_between() -> None:
    """What takes least by the program's rows takes 27 MB, for fast memory holds other things than they say: what is
    tried within limits above the step's own finds what fits.
    """
    program = _program(gru(), "v6e:2x2", "{x: 4}", 20_000_000)
    kept = Solutions(program, time.monotonic() + 60, 0, None, math.inf)
    for limit_bytes in (None, 20_000_000):
        kept.limit_bytes = limit_bytes
        kept.price(kept.solved(guess=True).choices)
    assert kept.least[0] > 25_000_000
    assert Limited(kept).approach()
    assert kept.least[0] < 20_000_000


def test_nothing_is_approached_that_is_far_below_what_is_seen() -> None:
    program = _program(gru(), "v6e:2x2", "{x: 4}", 4_000_000)
    kept = Solutions(program, time.monotonic() + 20, 0, None, math.inf)
    kept.price(kept.solved(guess=True).choices)
    assert not Limited(kept).approach()
    assert kept.best is None
    assert kept.limit_bytes is None


def test_what_memory_is_worth_finds_what_takes_less_and_leaves_what_was_learnt_as_it_was() -> None:
    program = _program(gru(), "v6e:2x2", "{x: 4}", 20_000_000)
    kept = Solutions(program, time.monotonic() + 60, 0, None, math.inf)
    quickest = kept.price(kept.solved(guess=True).choices).estimate
    known, guess_s, bound_s = dict(kept.misfits), [each.copy() for each in kept.learnt.guess_s], kept.bound_s
    found = weigh(kept)
    assert min(each.peak_bytes for each in found.values()) < 0.9 * quickest.peak_bytes
    assert (kept.misfits, kept.limit_bytes, kept.bound_s) == (known, None, bound_s)
    for before, after in zip(guess_s, kept.learnt.guess_s, strict=True):
        assert (after <= before).all()  # what was guessed of choices until they were priced is none


def gru(width: int = 256, length: int = 64, batch: int = 64, words: int = 8000) -> Pair:
    """A recurrent language model whose logits are by the embedding, trained by Adam."""

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        own = params["cell"]

        def turn(h: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
            z, r = (jax.nn.sigmoid(x @ own[f"w{gate}"] + h @ own[f"u{gate}"]) for gate in "zr")
            h = (1 - z) * h + z * jnp.tanh(x @ own["wn"] + (r * h) @ own["un"])
            return h, h

        _, made = jax.lax.scan(turn, jnp.zeros((batch, width)), params["e"][tokens].swapaxes(0, 1))
        logits = jax.nn.log_softmax((made @ params["e"].T)[:-1])
        return -jnp.mean(jnp.take_along_axis(logits, tokens.T[1:][..., None], -1))

    def step(state: Any, tokens: jax.Array) -> Any:
        value, gradient = jax.value_and_grad(loss)(state["p"], tokens)
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["m"], gradient)
        n = jax.tree.map(lambda n, g: 0.99 * n + 0.01 * g * g, state["n"], gradient)
        p = jax.tree.map(lambda p, m, n: p - 1e-3 * m / (jnp.sqrt(n) + 1e-8), state["p"], m, n)
        return {"p": p, "m": m, "n": n}, value

    cell = {f"{kind}{gate}": shape(width, width) for kind in "wu" for gate in "zrn"}
    params = {"e": shape(words, width), "cell": cell}
    return step, ({"p": params, "m": params, "n": params}, shape(batch, length, dtype=jnp.int32))


def _program(pair: Pair, topology: str, mesh: str, limit_bytes: int | None) -> Program:
    plan = loads(f"meshwright: 1\ntopology: {topology}\nmesh: {mesh}\ntensors: {{}}\n")
    assert plan.topology is not None
    workload = Drafts(*pair)
    returned = {each.path: each.returns for each in workload.tensors if each.returns}
    graph, machine = workload.graph(plan), physical(plan.topology)
    return build(graph, plan.mesh, machine, returned=returned, limit_bytes=limit_bytes)


@pytest.mark.parametrize("mesh", ["{x: 4}", "{x: 2, y: 2, z: 2}"])
def test_what_takes_a_little_more_than_the_limit_is_kept_beside_what_fits(mesh: str) -> None:
    """Also where a program is solved by parts; what takes far more is not."""
    plan = loads(
        f"meshwright: 1\ntopology: {'v5e:2x2' if mesh == '{x: 4}' else 'v3:2x2'}\nmesh: {mesh}\ntensors: {{}}\n"
    )
    assert plan.topology is not None
    graph, machine = Drafts(*mlp(layers=1)).graph(plan), physical(plan.topology)
    task = Task(
        graph=graph,
        mesh=plan.mesh,
        machine=machine,
        pins={},
        returned={},
        limit_bytes=None,
        time_limit_s=120.0,
        is_as_pinned=True,
    )
    solver = Solver()
    free = solver(task, lambda: False)
    assert not free.near
    taken = free.least_bytes
    held = solver(replace(task, limit_bytes=taken - 1), lambda: False)
    assert min(near.seconds for near in held.near) <= free.objective_s * (1 + ENOUGH) < held.objective_s
    assert all(near.peak_bytes > taken - 1 for near in held.near)
    far = solver(replace(task, limit_bytes=int(taken / (1 + AROUND)) - 1), lambda: False)
    assert all(near.seconds > free.objective_s for near in far.near)


def test_a_program_is_built_once_for_tasks_that_differ_by_their_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were built anew: what was priced since of what is known roughly changes nothing."""
    built: list[int | None] = []
    monkeypatch.setattr("meshwright.planner.program.pricing.rough.FEW", 1)
    monkeypatch.setattr("meshwright.planner.program.pricing.rough.FAR", 1.2)

    def noted(*args: Any, **options: Any) -> Program:
        built.append(options["limit_bytes"])
        return build(*args, **options)

    monkeypatch.setattr("meshwright.planner.program.build", noted)
    plan = loads("meshwright: 1\ntopology: v3:2x2\nmesh: {x: 8}\ntensors: {}\n")
    assert plan.topology is not None
    graph = Drafts(*mlp(layers=1)).graph(plan)
    task = Task(
        graph=graph,
        mesh=plan.mesh,
        machine=physical(plan.topology),
        pins={},
        returned={},
        limit_bytes=None,
        time_limit_s=60.0,
    )
    solver = Solver()
    free = solver(task, lambda: False)
    least = solver(replace(task, lowest=True, time_limit_s=2.0), lambda: False)
    held = solver(replace(task, limit_bytes=least.least_bytes), lambda: False)
    assert built == [None]
    assert (free.status, held.status) != ("infeasible", "infeasible")
    other = Solver()(replace(task, limit_bytes=least.least_bytes), lambda: False)
    assert (other.objective_s, other.layouts) == (held.objective_s, held.layouts)
    solver(replace(task, loose=True), lambda: False)
    assert len(built) == 3


def test_where_nothing_is_found_it_is_said_what_no_mesh_allows() -> None:
    """There may be no time to look for what takes least: then it was said to be as little as the arguments take."""
    plan = loads("meshwright: 1\ntopology: v3:2x2\nmesh: {x: 8}\ntensors: {}\n")
    assert plan.topology is not None
    graph, machine = Drafts(*mlp(layers=1)).graph(plan), physical(plan.topology)
    known_bytes = least_anywhere(graph, plan.mesh, machine, Known())
    task = Task(
        graph=graph,
        mesh=plan.mesh,
        machine=machine,
        pins={},
        returned={},
        limit_bytes=known_bytes + 1,
        time_limit_s=5.0,
        doubted=True,
    )
    found = Solver()(task, lambda: False)
    assert (dict(found.layouts), found.anywhere, found.anywhere_bytes) == ({}, False, known_bytes)


def test_choices_that_cost_nothing_may_be_whole_numbers() -> None:
    moves = Moves([np.zeros(3, np.int64)], {})
    assert [int(other[0]) for other in moves.others(0, np.array([1]))] == [0, 2]


def _drawn() -> tuple[Graph, dict[str, str]]:
    """Two products, one after the other."""
    drawing = Drawing()
    made = drawing.dot(drawing.arg(4096, 512), drawing.arg(512, 512))
    return drawing.graph(drawing.dot(made, drawing.arg(512, 4096))), {}
