"""The examples: each framework's step is read, priced and run under its plan, with the numbers of the plain step."""

from __future__ import annotations

import functools
import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from extent import some
from in_process import search
from meshwright import cli
from meshwright.dsl.plan import Auto, Rule
from meshwright.dsl.writer import dumps

ROOT = Path(__file__).parent.parent
REGIONS = ("pallas_kernel", "shard_map_region")  # these name the mesh
LONG = ("flax_linen",)  # more to choose among than the time allows: other processes end by then with what is written
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.yaml"))


@pytest.fixture(autouse=True)
def _importable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))


def plan_of(name: str) -> mw.Plan:
    return mw.load(ROOT / "examples" / f"{name}.yaml")


@functools.cache
def workload(name: str, **settings: Any) -> tuple[Any, Any]:
    return importlib.import_module(f"examples.{name}").training(**settings)


def concrete(args: Any) -> Any:
    """Numbers for abstract arguments: small and positive, so that they may be second moments too."""

    def fill(path: Any, leaf: Any) -> jax.Array:
        if jnp.issubdtype(leaf.dtype, jnp.integer):
            return jnp.arange(leaf.size, dtype=leaf.dtype).reshape(leaf.shape) % 7
        key = jax.random.key(len(jax.tree_util.keystr(path)))
        return jax.random.uniform(key, leaf.shape, leaf.dtype, 0.0, 0.1)

    return jax.tree_util.tree_map_with_path(fill, args)


@functools.cache
def alone(name: str) -> Any:
    """What the plain step gives for the same numbers, computed once; a step that names a mesh has one of one device."""
    step, abstract = workload(name, **dict.fromkeys(plan_of(name).mesh.sizes, 1) if name in REGIONS else {})
    return jax.jit(step)(*concrete(abstract))


def equal(got: Any, expected: Any) -> None:
    assert jax.tree.structure(got) == jax.tree.structure(expected)  # type: ignore[operator]
    for (path, a), b in zip(jax.tree_util.tree_leaves_with_path(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-6, err_msg=jax.tree_util.keystr(path))


def test_every_example_has_a_plan() -> None:
    modules = {path.stem for path in (ROOT / "examples").glob("*.py")}
    assert modules == set(EXAMPLES)
    assert len(EXAMPLES) >= 8


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_plan_changes_no_number(name: str) -> None:
    step, abstract = workload(name)
    args = concrete(abstract)
    plan = plan_of(name)
    got = mw.apply(plan, step, args)(*mw.place(plan, args, step, args))
    assert any(not leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(got))
    equal(got, alone(name))


@pytest.mark.parametrize("topology", ["cpu:8", "v5e:2x4"])
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_plan_is_priced(name: str, topology: str) -> None:
    step, args = workload(name)
    plan = mw.loads(dumps(plan_of(name)).replace("cpu:8", topology))
    estimate = mw.estimate(plan, step, args)
    assert estimate.fits
    assert estimate.compute_s > 0
    assert estimate.comm_s > 0
    held = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(args))
    assert estimate.peak_bytes > held / 8


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_checked_on_the_command_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert cli.main(["check", f"examples/{name}.yaml"]) == 0


def test_a_kernel_of_the_steps_own_is_priced_and_noted() -> None:
    """On a TPU the kernel is compiled by Mosaic: a call that nothing can look into."""
    step, args = workload("pallas_kernel", interpret=False)
    plan = mw.loads(dumps(plan_of("pallas_kernel")).replace("cpu:8", "v5e:2x4"))
    estimate = mw.estimate(plan, step, args)
    (kernel,) = [kernel for kernel in estimate.kernels if "custom_call" in kernel.label]
    assert kernel.predicted_s > 0
    assert any("1 kernel of the step's own (pallas_call) is priced by" in note for note in estimate.notes)
    plain = mw.estimate(plan, *workload("pallas_kernel"))
    assert not plain.notes
    assert estimate.collective_bytes == plain.collective_bytes


@pytest.mark.parametrize("name", some(EXAMPLES))
def test_a_plan_is_found_from_its_mesh_and_its_batch(name: str) -> None:
    """What is pinned stays, what is found is no slower than what was written by hand, and it changes no number."""
    step, abstract = workload(name)
    by_hand = plan_of(name)
    pins = tuple(rule for rule in by_hand.rules if rule.pattern == "batch/**")
    open_rest = (*pins, Rule(pattern="**", assignment=Auto()))
    find = mw.search if name in LONG else search
    result = find(step, abstract, plan=replace(by_hand, rules=open_rest), time_limit_s=12)
    assert result.plan is not None
    assert result.plan.mesh == by_hand.mesh
    assert result.plan.rules[0] == pins[0]
    assert result.step_time_s <= mw.estimate(by_hand, step, abstract).step_time_s * 1.0001
    args = concrete(abstract)
    equal(mw.apply(result.plan, step, args)(*mw.place(result.plan, args, step, args)), alone(name))
