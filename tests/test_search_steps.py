"""Searches of real steps: small, pinned and odd ones, and questions that are refused."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
import toy
from extent import some
from fake_search import GRAPH
from in_process import search
from meshwright.backends.jax.drafts import Drafts
from meshwright.backends.jax.search_options import amount_of, mesh_of
from meshwright.backends.jax.trace import trace
from meshwright.dsl.errors import PlanError
from meshwright.dsl.plan import Axis, Limits, Mesh
from meshwright.dsl.writer import dumps
from meshwright.planner.program import Known, exceeds_anywhere
from meshwright.planner.search.pool import Processes
from meshwright.planner.search.task import Task
from meshwright.planner.topology import physical
from small_steps import shape, trained

VOCABULARY = 5000


def small_step() -> tuple[Any, tuple[Any, ...]]:
    def step(params: Any, batch: Any) -> Any:
        def loss(w: Any) -> Any:
            return jnp.mean((jax.nn.relu(batch @ w["i"]) @ w["o"]) ** 2)

        value, gradient = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient), value

    shape = jax.ShapeDtypeStruct
    params = {"i": shape((256, 1024), jnp.float32), "o": shape((1024, 256), jnp.float32)}
    return step, (params, shape((4096, 256), jnp.float32))


def test_a_real_step_is_planned_applied_and_priced_alike() -> None:
    step, args = small_step()
    result = search(step, args, topology="cpu:8", mesh={"a": 4, "b": 2}, time_limit_s=60)
    assert result.plan.mesh.sizes == {"a": 4, "b": 2}
    assert result.plan.result.fingerprint.arguments["params"].tensors == 2
    again = mw.estimate(mw.loads(dumps(result.plan)), step, args)
    assert again.step_time_s == pytest.approx(result.step_time_s)
    assert result.bound_s <= result.step_time_s
    json.dumps(result.as_json())


def test_a_real_search_over_meshes_uses_workers_and_repeats() -> None:
    step, args = small_step()
    first = mw.search(step, args, topology="v5e:2x2", time_limit_s=120)
    second = mw.search(step, args, topology="v5e:2x2", time_limit_s=120)
    assert dumps(first.plan) == dumps(second.plan)
    assert first.status in ("optimal", "feasible")


def test_pins_of_a_real_plan_are_kept(tmp_path: Path) -> None:
    step, args = small_step()
    file = tmp_path / "partial.yaml"
    file.write_text("meshwright: 1\nmesh: {a: 2, b: 2}\ntensors: {params/i: X Y@b}\nlimits: {hbm: 1 GiB}\n")
    result = search(step, args, topology="v5e:2x2", plan=file)
    assert result.plan.rules[0].pattern == "params/i"
    assert result.plan.result.pins == ("mesh", "params/i")
    assert result.plan.limits == Limits(hbm_bytes=2**30)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "MW550"),
        ({"topology": "cpu:8", "limits": {"hbm": "3 GiB"}, "hbm_limit_bytes": 5}, "MW553"),
        ({"topology": "cpu:8", "time_limit_s": 0}, "MW553"),
        ({"topology": "cpu:8", "top_k": 0}, "MW553"),
        ({"topology": "cpu:8", "seed": -1}, "MW553"),
        ({"topology": "cpu:8", "mesh": {"a": "three"}}, "MW553"),
        ({"topology": "cpu:8", "limits": {"vmem": 3}}, "MW553"),
        ({"topology": "cpu:8", "time_limit_s": "5"}, "MW553"),
        ({"topology": "cpu:8", "top_k": 2.0}, "MW553"),
        ({"topology": "cpu:8", "seed": True}, "MW553"),
        ({"topology": "cpu:8", "mesh": {1: 8}}, "MW553"),
        ({"topology": "cpu:8", "mesh": ["a", "b"]}, "MW553"),
        ({"topology": 8}, "MW553"),
        ({"topology": "cpu:8", "plan": 8}, "MW553"),
        ({"topology": "cpu:8", "limits": "8 GiB"}, "MW553"),
        ({"topology": "cpu:8", "donate_argnums": 7}, "MW553"),
        ({"topology": "cpu:8", "donate_argnums": (0, "a")}, "MW553"),
        ({"topology": "cpu:8", "mesh": {"a b": 8}}, "MW050"),
        ({"topology": "cpu:8", "mesh": {"": 8}}, "MW049"),
        ({"topology": "cpu:8", "limits": {"hbm": "15"}}, "MW025"),
        ({"topology": "cpu:8", "limits": {"hbm": 1.5}}, "MW553"),
        ({"topology": "cpu:8", "hbm_limit_bytes": 0}, "MW027"),
        ({"topology": "cpu:8", "hbm_limit_bytes": True}, "MW553"),
        ({"topology": "cpu:8", "mesh": {"a": 3}}, "MW210"),
        ({"topology": "cpu:8", "plan": "meshwright: 1\nremat: full\n"}, "MW304"),
    ],
)
def test_wrong_questions_are_refused(options: dict[str, Any], code: str) -> None:
    step, args = toy.pair()
    with pytest.raises(PlanError) as error:
        mw.search(step, args, **options)
    assert code in {found.code for found in error.value.problems}


def test_all_that_is_wrong_of_a_call_is_said_at_once() -> None:
    step, args = toy.pair()
    with pytest.raises(PlanError) as error:
        mw.search(step, args, topology=8, mesh={"a": 0, "b": "c"}, limits={"hbm": "15"}, top_k=0, seed=-1)
    assert [found.code for found in error.value.problems] == ["MW553"] * 5 + ["MW025"]


def test_one_argument_alone_is_no_tuple_of_arguments() -> None:
    step, args = toy.pair()
    for call in (lambda: mw.search(step, args[0], topology="cpu:8"), lambda: trace(step, args[0])):
        with pytest.raises(TypeError, match="args are a tuple"):
            call()


def test_donated_arguments_are_counted_as_jax_counts_them() -> None:
    step, args = toy.pair()
    traced = trace(step, args)
    assert traced.donates(-1) == (len(args) - 1,)
    assert traced.donates((np.int64(0),)) == (0,)
    for wrong in (len(args), "a", [True], [0, -9]):
        with pytest.raises(PlanError, match="MW553"):
            traced.donates(wrong)


def test_amounts_and_sizes_may_be_written_as_in_a_plan() -> None:
    assert amount_of("hbm_limit_bytes", "1 GiB") == amount_of("hbm_limit_bytes", np.int64(2**30)) == 2**30
    sizes: dict[str, Any] = {"a": np.int64(2), "b": "auto"}
    assert mesh_of(sizes).axes == (Axis(name="a", size=2), Axis(name="b", size=None))


def test_workers_solve_tasks_and_say_why_they_fail() -> None:
    task = Task(
        graph=GRAPH,
        mesh=Mesh(axes=None),
        machine="no machine",
        pins={},
        returned={},
        limit_bytes=None,
        time_limit_s=1.0,
    )
    with Processes() as pool:
        futures = [pool.submit(task), pool.submit(task)]
        for future in futures:
            with pytest.raises(RuntimeError, match="Traceback"):
                future.result(60)


ABANDONED = """
import os, signal, time
from fake_search import GRAPH
from meshwright.dsl.plan import Mesh
from meshwright.planner.search.pool import Processes
from meshwright.planner.search.task import Task

asked = dict(pins={}, returned={}, limit_bytes=None, time_limit_s=60.0)
pool = Processes()
pool.submit(Task(graph=GRAPH, mesh=Mesh(axes=None), machine="no machine", **asked))
time.sleep(0.2)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(60)
"""


def test_workers_of_a_search_that_is_killed_end_without_a_word() -> None:
    """They have nobody to answer, which is no error of theirs."""
    command = [sys.executable, "-c", ABANDONED]
    ended = subprocess.run(command, cwd=Path(__file__).parent, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (-signal.SIGTERM, "")  # read until the workers have ended


@pytest.mark.parametrize(
    ("step", "args"),
    [
        (lambda a, b: a * b, ((), ())),
        (lambda a: None, ((8,),)),
        (lambda a: jnp.ones((8, 8)), ((8,),)),
        (lambda: jnp.ones((8, 8)), ()),
        (lambda a, b: (a @ b).sum(), ((8, 16), (0, 8))[::-1]),
        (lambda *many: [jnp.tanh(each) @ each for each in many], ((3, 3),) * 35),
        (lambda a: (jnp.tanh(a), True, 2.5), ((8, 8),)),
    ],
    ids=["numbers", "nothing made", "nothing read", "nothing given", "nothing in it", "nothing divides", "constants"],
)
def test_odd_steps_have_plans(step: Callable[..., Any], args: tuple[tuple[int, ...], ...]) -> None:
    given = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in args)
    result = search(step, given, topology="v5e:2x2", mesh={"a": 4}, time_limit_s=60)
    assert result.status == "optimal"
    assert mw.estimate(result.plan, step, given).step_time_s == pytest.approx(result.step_time_s)


@pytest.mark.parametrize(("typed", "exact"), some([(True, True), (True, False), (False, False), (False, True)]))
def test_steps_draw_with_keys_that_come_back(typed: bool, exact: bool) -> None:
    """What is drawn for a product is computed with it, from numbers that are computed there too."""

    def step(w: Any, key: Any, x: Any) -> Any:
        def loss(w: Any) -> Any:
            kept = jax.random.bernoulli(key, 0.9, (256, 2048))
            return jnp.mean((jnp.where(kept, x @ w["i"], 0) @ w["o"] - x) ** 2)

        value, gradient = jax.value_and_grad(loss)(w)
        return jax.tree.map(lambda p, g: p - 0.1 * g, w, gradient), jax.random.split(key)[1], value

    shape = jax.ShapeDtypeStruct
    w = {"i": shape((512, 2048), jnp.float32), "o": shape((2048, 512), jnp.float32)}
    key = jax.eval_shape(lambda: jax.random.key(0) if typed else jax.random.PRNGKey(0))
    args = (w, key, shape((256, 512), jnp.float32))
    result = search(step, args, topology="v5e:2x4", mesh={"a": 2, "b": 4}, exact=exact, time_limit_s=60)
    assert result.plan is not None
    assert mw.estimate(result.plan, step, args).step_time_s == pytest.approx(result.step_time_s)
    assert result.gap < 0.05


@pytest.mark.parametrize("typed", [True, False])
def test_results_that_are_keys_or_constants_come_back_as_they_are(typed: bool) -> None:
    def step(key: Any, x: Any) -> Any:
        return jax.random.split(key)[0], x + jax.random.normal(key, x.shape), True, 2.5

    args = (jax.random.key(0) if typed else jax.random.PRNGKey(0), jnp.ones((8, 8)))
    result = search(step, jax.eval_shape(lambda: args), topology="cpu:8", mesh={"a": 8}, time_limit_s=60)
    assert result.plan is not None
    (key, noise, *constants), (same_key, same_noise, *same) = mw.apply(result.plan, step, args)(*args), step(*args)
    assert jax.random.key_data(key).tolist() == jax.random.key_data(same_key).tolist()
    assert noise == pytest.approx(same_noise)
    assert constants == same


def region_step(x: Any) -> Any:
    mesh = jax.sharding.AbstractMesh((2, 4), ("a", "b"))
    return jax.shard_map(lambda x: jax.lax.psum(x, "b"), mesh=mesh, in_specs=jax.P("a", "b"), out_specs=jax.P("a"))(x)


def test_of_a_step_with_a_region_that_is_doubted_nothing_is_proven_of_all_meshes() -> None:
    """The region says itself how it is split: it has 16 KiB whole."""
    args = (jax.ShapeDtypeStruct((64, 64), jnp.float32),)
    assert exceeds(region_step, args) is False
    assert exceeds(lambda x: x + 1, args) is True


def exceeds(step: Any, args: Any) -> bool:
    plan = mw.loads("meshwright: 1\ntopology: cpu:8\nmesh: {a: 2, b: 4}\n")
    return exceeds_anywhere(Drafts(step, args).graph(plan), plan.mesh, physical(plan.topology), 1000, Known())


def test_a_step_with_a_region_is_searched_on_the_regions_mesh() -> None:
    args = (jax.ShapeDtypeStruct((64, 64), jnp.float32),)
    found = search(region_step, args, topology="cpu:8", time_limit_s=30)
    assert found.plan is not None
    assert found.plan.mesh.sizes == {"a": 2, "b": 4}
    assert search(region_step, args, plan=found.plan, time_limit_s=30).optimum is not None
    nothing = search(region_step, args, topology="cpu:8", time_limit_s=30, hbm_limit_bytes=3000)
    assert nothing.plan is None
    assert [one.is_memory for one in nothing.misfit.remedies] == [True]  # no other mesh, nor more chips
    for mesh in ({"a": 4, "b": 2}, {"c": 8}):
        with pytest.raises(PlanError, match="MW320"):
            search(region_step, args, topology="cpu:8", mesh=mesh, time_limit_s=30)
    with pytest.raises(PlanError, match="MW320"):
        mw.estimate(
            mw.loads("meshwright: 1\ntopology: cpu:8\nmesh: {c: 8}\ntensors: {'**': replicate}\n"), region_step, args
        )


def constrained_step(x: Any) -> Any:
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    return jax.lax.with_sharding_constraint(x * 2, jax.NamedSharding(mesh, jax.P("a", jax.P.UNCONSTRAINED))) @ x


def nested_step(x: Any) -> Any:
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    return jax.jit(lambda x: x * 2, in_shardings=jax.NamedSharding(mesh, jax.P("b")))(x) @ x


@pytest.mark.parametrize("step", [constrained_step, nested_step])
def test_a_step_that_says_how_its_own_values_lie_is_searched_on_the_mesh_that_it_names(step: Any) -> None:
    args = (jax.ShapeDtypeStruct((64, 64), jnp.float32),)
    found = search(step, args, topology="cpu:8", time_limit_s=30)
    assert found.plan is not None
    assert found.plan.mesh.sizes == {"a": 2, "b": 4}
    assert found.step_time_s == mw.estimate(found.plan, step, args).step_time_s
    with pytest.raises(PlanError, match="MW320"):
        search(step, args, topology="cpu:8", mesh={"c": 8}, time_limit_s=30)
    with pytest.raises(PlanError, match="MW320"):
        mw.estimate(mw.loads("meshwright: 1\ntopology: cpu:8\nmesh: {c: 8}\ntensors: {'**': replicate}\n"), step, args)


def test_a_step_that_leaves_its_own_values_whole_is_searched_on_any_mesh() -> None:
    def step(x: Any) -> Any:
        mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
        return jax.lax.with_sharding_constraint(x * 2, jax.NamedSharding(mesh, jax.P())) @ x

    args = (jax.ShapeDtypeStruct((64, 64), jnp.float32),)
    found = search(step, args, topology="cpu:8", mesh={"c": 8}, time_limit_s=30)
    assert found.plan is not None
    assert mw.apply(found.plan, step, args)(jnp.ones((64, 64))) == pytest.approx(step(jnp.ones((64, 64))))


def test_a_table_that_reads_and_writes_words_is_planned_as_it_was_solved() -> None:
    """Its gradient is added up of a product and of one that is turned twice: said at both ends of that, how it lies
    would keep devices from adding both up at once, as the program has it.
    """

    def loss(params: Any, tokens: jax.Array, targets: jax.Array) -> jax.Array:
        x = jax.nn.one_hot(tokens, VOCABULARY) @ params["table"]
        logits = jnp.tanh(x @ params["w"]) @ params["table"].T
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(targets, VOCABULARY), -1))

    ids = shape(128, 256, dtype=jnp.int32)
    step, args = trained(loss, {"table": shape(VOCABULARY, 1024), "w": shape(1024, 1024)}, ids, ids)
    found = search(step, args, topology="v5e:4x8", mesh={"x": 32})
    assert found.status == "optimal"
    assert found.step_time_s == pytest.approx(found.candidates[0].objective_s, rel=0.01)
