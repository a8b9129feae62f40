"""Computed values have paths that stay, and a plan can lay them out, forward and backward."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.backends.jax.drafts import Drafts
from meshwright.backends.jax.trace import trace
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Remat
from meshwright.dsl.reader import loads
from meshwright.dsl.writer import dumps
from unrolled import arguments, paths, step

FULL = Remat(policy="full")
ARGS = arguments()


def plan(*rules, others="  '**': replicate\n", top=""):
    lines = "".join(f"  {rule}\n" for rule in rules)
    return loads(f"meshwright: 1\ntopology: cpu:8\nmesh: {{x: 2, y: 4}}\ntensors:\n{lines}{others}{top}", "p")


def sites(found):
    return {re.sub(r"/\d+$", "", path) for path in found}


def concrete(seed=0):
    leaves, structure = jax.tree.flatten(ARGS)
    keys = jax.random.split(jax.random.key(seed), len(leaves))
    drawn = [jax.random.normal(k, leaf.shape) / 8 for k, leaf in zip(keys, leaves, strict=True)]
    return jax.tree.unflatten(structure, drawn)


def test_paths_say_function_direction_and_place() -> None:
    found = paths()
    assert len(set(found)) == len(found)
    assert {"ops/attend/dot_general.0/0", "ops/attend/dot_general.1/1", "ops/loss/scan.0.0"} <= set(found)
    assert all(path.startswith("ops/") for path in found)
    assert any(path.startswith("ops/attend/grad/dot_general.") for path in found)
    assert any(path.startswith("ops/attend/remat/dot_general.") for path in paths(remat=FULL))
    assert not any("remat/" in path for path in found)


@pytest.mark.parametrize("remat", [None, FULL])
def test_unrolled_layers_share_their_places(remat) -> None:
    few, many = paths(2, remat=remat), paths(7, remat=remat)
    assert sites(few) == sites(many)
    assert len(many) > 1.5 * len(few)  # of rematerialised layers most share their backward pass


def test_the_length_of_a_loop_changes_no_path() -> None:
    assert paths(turns=3) == paths(turns=50)


def scanned(w, x):
    """The gradient of layers that are scanned over their weights."""
    return jax.grad(lambda w: (jax.lax.scan(lambda c, each: (jnp.tanh(c @ each), None), x, w)[0] ** 2).sum())(w)


SCANNED = jax.ShapeDtypeStruct((4, 32, 32), jnp.float32), jax.ShapeDtypeStruct((16, 32), jnp.float32)


def test_what_each_turn_of_a_scan_reads_of_what_it_goes_over_has_a_path() -> None:
    found = trace(scanned, SCANNED).values.by_path
    assert found["ops/lambda/scan.0.xs0"].shape == (32, 32)
    assert {each.shape for path, each in found.items() if path.startswith("ops/lambda/grad/scan.0.xs")} >= {(32, 32)}


def test_a_plan_lays_out_what_each_turn_reads() -> None:
    """Split weights are gathered once a turn then, forward and backward, and the numbers stay."""
    said = "'w': _ _ _@y", "'x': _@x _", "'ops/**/scan.0.xs0': replicate"
    applied = mw.apply(plan(*said), scanned, SCANNED)
    key = jax.random.key(0)
    args = [jax.random.normal(key, each.shape) / 8 for each in SCANNED]
    np.testing.assert_allclose(np.asarray(applied(*args)), np.asarray(scanned(*args)), rtol=1e-5, atol=1e-6)
    gathers = [each for each in mw.estimate(plan(*said), scanned, SCANNED).collectives if each.kind == "all-gather"]
    assert [each.axes for each in gathers] == [("y",)] * 2
    assert "scan.0.xs0" in applied.lower(*SCANNED).as_text(debug_info=True)


def test_another_process_finds_the_same_paths() -> None:
    here = paths()
    environment = os.environ | {"PYTHONHASHSEED": "7"}
    file = str(Path(__file__).with_name("unrolled.py"))
    there = subprocess.run([sys.executable, file], capture_output=True, text=True, check=True, env=environment)
    assert there.stdout.split() == here == paths()


def spread(x, y):
    return x.var(-1) + y.var(-1)


def test_each_call_of_a_library_s_function_has_paths_of_its_own() -> None:
    """JAX traces ``jnp.var`` once for both."""
    values = trace(spread, (np.ones((8, 16)), np.ones((8, 16)))).values
    assert {"ops/spread/_var.sub.0", "ops/spread/_var.sub.1", "ops/spread/_var.square.1.in0"} <= set(values.by_path)
    assert not values.shared


@pytest.mark.parametrize("remat", [None, FULL])
def test_a_tag_on_what_a_call_gives_is_what_is_computed_in_it(remat) -> None:
    """``jax.nn.relu`` is two calls around one operation, by whose path alone the graph knows the value."""
    block = mw.remat(lambda w, x: mw.tag(jax.nn.relu(x @ w), "hidden") @ w.T)

    def loss(w, x):
        return jnp.sum(block(w, block(w, x)))

    drafts = Drafts(jax.value_and_grad(loss), (np.ones((16, 32)), np.ones((8, 16))))
    told = replace(plan(), topology=parse_topology("v5e:2x4"), remat=remat)
    made = {path for op in drafts.graph(told).ops for _, path in op.named}
    tagged = drafts.tags_under(remat)["acts/hidden"]
    assert not drafts.traced(remat).values.shared
    assert len(tagged) == (4 if remat is None else 6)
    assert set(tagged) <= made


def test_large_functions_of_a_library_stay_shared() -> None:
    """However few equations the outermost has: each call would be lowered anew."""
    traced = trace(lambda x, y: jnp.median(x) + jnp.median(y), (np.ones(9), np.ones(9)))
    first, second = (e.params["jaxpr"] for e in traced.jaxpr.jaxpr.eqns if e.params.get("name") == "median")
    assert first is second


def test_one_call_of_a_library_s_function_is_laid_out_and_the_other_not() -> None:
    x = np.arange(128.0, dtype=np.float32).reshape(8, 16)
    told = plan("ops/spread/_var.square.0: _@x _@y")
    applied = mw.apply(told, spread, (x, x))
    np.testing.assert_allclose(applied(x, 2 * x), spread(x, 2 * x), rtol=1e-6)
    text = applied.lower(x, x).compile().as_text()
    assert "f32[4,4]" in text
    assert "f32[8,16]" in text


def test_nothing_is_looked_at_before_a_plan_names_something() -> None:
    traced = trace(step, ARGS)
    assert traced.named_by(plan()) == traced.tensors
    assert not [name for name in vars(traced.values) if not name.startswith("_")]
    named = traced.named_by(plan("ops/attend/dot_general.0/*: _@x _"))
    assert [t.path for t in named if t.role == "op"] == [f"ops/attend/dot_general.0/{i}" for i in range(2)]


@pytest.mark.parametrize(
    ("rule", "code", "says"),
    [
        ("ops/attend/dot_generl.0/**: _@x _", "MW101", "ops/attend/dot_general"),
        ("ops/attend/dot_general.0/**: _@x", "MW104", "2 dims"),
        ("ops/attend/dot_general.0/**: _@z _", "MW106", "'z'"),
        ("ops/attend/dot_general.0/**: D _", "MW108", "'D'"),
        ("'**/dot_general.0/**': _@x _", "MW101", "matches no tensor"),
    ],
)
def test_a_wrong_rule_for_a_value_is_a_problem_as_any_other(rule, code, says) -> None:
    with pytest.raises(mw.PlanError) as caught:
        mw.estimate(plan("'params/layers/*/wo': _ D", rule), step, ARGS)
    assert code in str(caught.value)
    assert says in str(caught.value)


def test_a_dim_that_does_not_divide_is_a_problem() -> None:
    with pytest.raises(mw.PlanError, match=r"(?s)MW105.*'_@y!pad'"):
        mw.estimate(
            loads("meshwright: 1\nmesh: {y: 5}\ntensors:\n  ops/attend/dot_general.0/0: _@y _\n  '**': replicate\n"),
            step,
            ARGS,
        )


def test_ops_is_no_name_for_an_argument() -> None:
    with pytest.raises(mw.PlanError, match="MW302"):
        trace(lambda ops: ops, (ARGS[1],))


def test_a_nameless_dim_stands_often_and_agrees_with_none() -> None:
    told = plan("params/layers/*/q: _@x _@y", "params/layers/*/wi: _ _", "ops/attend/dot_general.0/**: _@x+y _")
    assert loads(dumps(told)) == told
    assert dumps(loads(dumps(told))) == dumps(told)
    assert "_" not in mw.apply(told, step, ARGS).layouts.resolution.dims


@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_rules_for_values_change_no_number(data) -> None:
    remat = data.draw(st.sampled_from([None, FULL]))
    chosen = data.draw(st.lists(st.sampled_from(trace(step, ARGS, remat).values.tensors), min_size=1, max_size=8))
    rules = {}
    for tensor in chosen:
        over = data.draw(st.permutations(["@x", "@y", *[""] * len(tensor.shape)]))[: len(tensor.shape)]
        sizes = {"@x": 2, "@y": 4, "": 1}
        over = [axis if n % sizes[axis] == 0 else "" for axis, n in zip(over, tensor.shape, strict=True)]
        rules[tensor.path] = " ".join(f"_{axis}" for axis in over)
    told = plan(*(f"{path}: {text}" for path, text in rules.items()), top="remat: full\n" if remat else "")
    values = concrete()
    got, expected = mw.apply(told, step, ARGS)(*values), jax.jit(step)(*values)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5), got, expected)


@pytest.mark.parametrize("path", ["ops/attend/dot_general.0/0", "ops/attend/grad/dot_general.0/0"])
def test_the_compiled_program_honours_it(path) -> None:
    rows, columns = next(t.shape for t in trace(step, ARGS).values.tensors if t.path == path)
    plain, split = (
        mw.apply(plan(*rules), step, ARGS).lower(*ARGS).compile().as_text() for rules in ((), (f"{path}: _@x _@y",))
    )
    part = f"f32[{rows // 2},{columns // 4}]"
    assert part not in plain
    assert part in split
