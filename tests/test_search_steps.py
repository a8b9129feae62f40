"""Searches of real steps: small, pinned and odd ones, and questions that are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
import toy
from fake_search import GRAPH
from meshwright.dsl.errors import PlanError
from meshwright.dsl.plan import Limits, Mesh
from meshwright.dsl.writer import dumps
from meshwright.planner.search.pool import Processes
from meshwright.planner.search.task import Task


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
    result = mw.search(step, args, topology="cpu:8", mesh={"a": 4, "b": 2}, time_limit_s=60)
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
    result = mw.search(step, args, topology="v5e:2x2", plan=file)
    assert result.plan.rules[0].pattern == "params/i"
    assert result.plan.result.pins == ("mesh", "params/i")
    assert result.plan.limits == Limits(hbm_bytes=2**30)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({}, "MW550"),
        ({"topology": "cpu:8", "time_limit_s": 0}, "MW553"),
        ({"topology": "cpu:8", "top_k": 0}, "MW553"),
        ({"topology": "cpu:8", "seed": -1}, "MW553"),
        ({"topology": "cpu:8", "mesh": {"a": "three"}}, "MW553"),
        ({"topology": "cpu:8", "limits": {"vmem": 3}}, "MW553"),
        ({"topology": "cpu:8", "mesh": {"a": 3}}, "MW210"),
        ({"topology": "cpu:8", "plan": "meshwright: 1\nremat: full\n"}, "MW304"),
    ],
)
def test_wrong_questions_are_refused(options: dict[str, Any], code: str) -> None:
    step, args = toy.pair()
    with pytest.raises(PlanError) as error:
        mw.search(step, args, **options)
    assert code in {found.code for found in error.value.problems}


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


@pytest.mark.parametrize(
    ("step", "args"),
    [
        (lambda a, b: a * b, ((), ())),
        (lambda a: None, ((8,),)),
        (lambda a: jnp.ones((8, 8)), ((8,),)),
        (lambda: jnp.ones((8, 8)), ()),
        (lambda a, b: (a @ b).sum(), ((8, 16), (0, 8))[::-1]),
        (lambda *many: [jnp.tanh(each) @ each for each in many], ((3, 3),) * 35),
    ],
    ids=["numbers", "nothing made", "nothing read", "nothing given", "nothing in it", "nothing divides"],
)
def test_odd_steps_have_plans(step: Callable[..., Any], args: tuple[tuple[int, ...], ...]) -> None:
    given = tuple(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in args)
    result = mw.search(step, given, topology="v5e:2x2", mesh={"a": 4}, time_limit_s=60)
    assert result.status == "optimal"
    assert mw.estimate(result.plan, step, given).step_time_s == pytest.approx(result.step_time_s)
