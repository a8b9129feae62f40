"""Every plan that ships is legal and canonical; those for CPU devices compute what the unsharded step computes."""

import functools
from pathlib import Path

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from extent import some
from layouts import assert_close, assert_layouts
from meshwright.backends.jax.loading import load_workload, trace_workload
from meshwright.backends.jax.open_settings import open_settings
from meshwright.backends.jax.trace import trace
from meshwright.dsl.checks import check
from meshwright.dsl.holes import holes
from meshwright.dsl.writer import dumps
from random_plans import random_plan

PLANS = sorted((Path(__file__).parent.parent / "plans").glob("*.yaml"))
PARTIAL = sorted((Path(__file__).parent.parent / "plans" / "partial").glob("*.yaml"))
ON_CPU = [path for path in PLANS if "topology: cpu" in path.read_text()]
TRIED = some(ON_CPU, of=len(ON_CPU))


def names(paths):
    return [path.stem for path in paths]


@pytest.mark.parametrize("path", PLANS, ids=names(PLANS))
def test_a_shipped_plan_is_legal_canonical_and_says_what_it_shows(path):
    plan = mw.load(path)
    assert check(plan, trace_workload(plan).tensors) == ()
    assert dumps(plan) == path.read_text()
    assert path.read_text().startswith("# ")
    assert plan.name == path.stem


@functools.cache
def unsharded(model, settings):
    """The workload, concrete arguments, and what its step gives without any plan."""
    plan = mw.loads(f"meshwright: 1\nmodel: {model}\nwith: {settings}\n")
    workload = load_workload(plan)
    args = (*workload.init(0), batch_like(workload.args[-1]))
    return workload, args, jax.jit(workload.step)(*args)


def batch_like(shapes):
    """A batch of small random numbers: tokens, segments and positions are legal for every model that ships."""
    rng = np.random.default_rng(0)

    def leaf(x):
        whole = np.issubdtype(x.dtype, np.integer)
        return (rng.integers(1, 4, x.shape) if whole else rng.normal(size=x.shape)).astype(x.dtype)

    return jax.tree.map(leaf, shapes)


def settings_of(plan):
    return "{" + ", ".join(f"{key}: {value}" for key, value in plan.settings.items()) + "}"


@pytest.mark.parametrize("path", TRIED, ids=names(TRIED))
def test_a_shipped_plan_computes_what_the_unsharded_step_computes(path):
    plan = mw.load(path)
    workload, args, expected = unsharded(plan.model, settings_of(plan))
    fast = mw.apply(plan, workload.step, workload.args)
    compiled = fast.lower(*workload.args).compile()
    assert_close(compiled(*mw.place(plan, args)), expected)
    assert_layouts(fast, compiled)


TINIEST = (
    "{member: tiny, model_dim: 16, hidden_dim: 32, heads: 2, head_dim: 8, batch: 8, length: 16, "
    "source_vocab: 64, target_vocab: 64}"
)


@pytest.mark.parametrize("seed", [1])
def test_random_legal_plans_of_the_moe_transformer_compute_the_same(seed):
    workload, args, expected = unsharded("meshwright.backends.jax.models:gshard", TINIEST)
    plan = random_plan(trace(workload.step, workload.args).tensors, seed)
    fast = mw.apply(plan, workload.step, workload.args)
    compiled = fast.lower(*workload.args).compile()
    assert_close(compiled(*mw.place(plan, args, workload.step, workload.args)), expected)
    assert_layouts(fast, compiled)


def test_spatial_splits_exchange_halos():
    plan = mw.load(next(p for p in ON_CPU if p.stem == "conv-spatial"))
    workload = load_workload(plan)
    compiled = mw.apply(plan, workload.step, workload.args).lower(*workload.args).compile()
    assert "collective-permute" in compiled.as_text()
    assert jnp.isfinite(compiled(*mw.place(plan, unsharded(plan.model, "{}")[1]))[-1]["loss"])


@pytest.mark.parametrize("path", PARTIAL, ids=lambda path: path.stem)
def test_plans_with_holes_are_legal_and_canonical(path: Path) -> None:
    plan = mw.load(path)
    assert dumps(plan) == path.read_text()
    assert holes(plan)
    left = open_settings(plan)
    settled = left.first_accepted() if left.every else plan
    assert not check(settled, trace_workload(settled).tensors)


def test_the_demo_searches_explains_and_trains() -> None:
    lines = (Path(__file__).parent.parent / "Makefile").read_text().partition("\ndemo:")[2].split("\n\n")[0]
    searched = [f"meshwright {word}" in lines for word in ("search plans/partial/gshard-tiny.yaml", "explain", "run")]
    assert all(searched)
