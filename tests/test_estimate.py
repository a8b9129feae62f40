"""What a step is predicted to take: the price of one device's program, worked out by hand where that can be done."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from meshwright import cli
from meshwright.backends.jax import estimate as estimate_module
from meshwright.backends.jax.graph_cache import MAX_GRAPHS, GraphCache, Known
from meshwright.dsl.errors import PlanError
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Limits, Plan
from meshwright.dsl.reader import loads
from meshwright.planner.collectives import price
from meshwright.planner.estimate.roofline import matrix_work
from meshwright.planner.estimate.traffic import tariff
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.topology import physical

B, K, N = 64, 128, 256
Step = Callable[..., Any]
F32 = 4


def product() -> Step:
    """A new step each time, for steps are remembered."""

    def step(params: jax.Array, batch: jax.Array) -> jax.Array:
        return batch @ params

    return step


ARGS = (jax.ShapeDtypeStruct((K, N), jnp.float32), jax.ShapeDtypeStruct((B, K), jnp.float32))


def plan(topology: str = "v5e:2x2", params: str = "K@model N", batch: str = "B@data K@model") -> Plan:
    return loads(
        f"meshwright: 1\ntopology: {topology}\nmesh: {{data: 2, model: 2}}\n"
        f"tensors:\n  params: {params}\n  batch: {batch}\n  out: B@data N\n",
        "plan.yaml",
    )


def test_a_contracted_dim_that_is_split_is_summed_by_an_all_reduce() -> None:
    estimate = mw.estimate(plan(), product(), ARGS)
    (summed,) = estimate.collectives
    assert (summed.kind, summed.axes, summed.group_size, summed.times) == ("all-reduce", ("model",), 2, 1)
    assert summed.num_bytes == summed.total_bytes == B // 2 * N * F32
    assert summed.origin.source.endswith("test_estimate.py:39")
    machine = physical(parse_topology("v5e:2x2"))
    placed = tariff(plan().mesh, machine, {}).placement(("model",))
    assert summed.predicted_s == price("all-reduce", summed.num_bytes, placed).total_s


def test_the_bounds_are_flops_at_peak_or_arguments_once() -> None:
    chip = physical(parse_topology("v5e:2x2")).chip
    bound = mw.estimate(plan(), product(), ARGS).bound
    assert bound.step_flops == bound.plan_flops == 2 * B * K * N / 4
    flops_s = bound.step_flops / chip.peak_flops_per_s("float32")
    step_bytes, plan_bytes = (K * N + B * K) * F32 / 4, (K * N / 2 + B * K / 4) * F32
    assert bound.step_s == pytest.approx(max(flops_s, step_bytes / chip.hbm_bytes_per_s))
    assert bound.plan_s == pytest.approx(max(flops_s, plan_bytes / chip.hbm_bytes_per_s))


def test_a_plan_that_repeats_work_has_a_worse_bound_than_the_step() -> None:
    bound = mw.estimate(plan(params="replicate", batch="replicate"), product(), ARGS).bound
    assert bound.plan_flops >= 2 * bound.step_flops


def test_a_step_is_compute_and_communication_one_after_the_other() -> None:
    estimate = mw.estimate(plan(), product(), ARGS)
    assert estimate.step_time_s == estimate.compute_s + estimate.comm_s
    assert estimate.compute_s == sum(kernel.predicted_s * kernel.times for kernel in estimate.kernels) > 0
    assert estimate.comm_s == sum(c.predicted_s * c.times for c in estimate.collectives) > 0
    assert estimate.overlapped_s == max(estimate.compute_s, estimate.comm_s)
    assert estimate.peak_bytes == sum(estimate.bytes_by_kind.values())


def test_tensors_lie_as_the_plan_says() -> None:
    layouts = {tensor.path: tensor for tensor in mw.estimate(plan(), product(), ARGS).tensors}
    assert layouts["params"].axes == (("model",), ())
    assert layouts["params"].device_bytes == K // 2 * N * F32
    assert (layouts["out"].role, layouts["out"].axes) == ("result", (("data",), ()))


def scanned(layers: int) -> tuple[Step, tuple[Any, Any]]:
    def step(params: jax.Array, batch: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), batch, params)[0]

    return step, (jax.ShapeDtypeStruct((layers, K, K), jnp.float32), jax.ShapeDtypeStruct((B, K), jnp.float32))


def test_a_loop_is_priced_by_its_turns() -> None:
    told = plan(params="L K@model N", batch="B@data K")
    short, long = (mw.estimate(told, *scanned(layers)) for layers in (4, 96))
    assert len(short.kernels) == len(long.kernels)
    assert [c.num_bytes for c in short.collectives] == [c.num_bytes for c in long.collectives]
    assert {c.times for c in short.collectives} - {1} == {4}
    assert {c.times for c in long.collectives} - {1} == {96}
    assert long.compute_s == pytest.approx(24 * short.compute_s, rel=0.2)


@pytest.mark.parametrize("topology", ["cpu:4", "h100:4x1", "v3:1x2", "v4:2x1x1", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x1x1"])
def test_every_kind_of_machine_has_a_price(topology: str) -> None:
    estimate = mw.estimate(plan(topology), product(), ARGS)
    assert estimate.comm_s > 0
    assert estimate.fits
    assert (estimate.compute_s is None) == (topology == "cpu:4")
    assert json.loads(json.dumps(estimate.as_json()))["topology"] == topology


def counted() -> tuple[Step, list[int]]:
    traced: list[int] = []

    def step(params: jax.Array, batch: jax.Array) -> jax.Array:
        traced.append(1)
        return batch @ params

    return step, traced


def test_pricing_again_does_not_read_the_step_again() -> None:
    step, traced = counted()
    first = mw.estimate(plan(), step, ARGS)
    once = len(traced)
    again = mw.estimate(replace(plan(), limits=Limits(hbm_bytes=1000)), step, ARGS)
    elsewhere = mw.estimate(plan("v6e:2x2"), step, ARGS)
    assert len(traced) == once
    assert first.fits
    assert not again.fits
    assert elsewhere.compute_s < first.compute_s


def test_the_device_order_changes_the_price_and_nothing_else() -> None:
    wide = "meshwright: 1\ntopology: v5e:4x16\nmesh: {data: %s, model: %s}\ntensors:\n"
    rules = "  params: K@model N\n  batch: B@data K@model\n  out: B@data N\n"
    step, traced = counted()
    long = mw.estimate(loads(wide % ("{size: 4, over: [x]}", "{size: 16, over: [y]}") + rules, "p"), step, ARGS)
    once = len(traced)
    cut = "{size: 4, over: ['y:4']}", "{size: 16, over: [x, 'y:4']}"
    square = mw.estimate(loads(wide % cut + rules, "p"), step, ARGS)
    assert len(traced) == once
    assert square.collective_bytes == long.collective_bytes
    assert square.peak_bytes == long.peak_bytes
    assert square.comm_s != long.comm_s
    assert [axis.spans for axis in square.axes] != [axis.spans for axis in long.axes]


def test_an_explicit_device_assignment_is_read_for_its_device_order() -> None:
    step = product()
    told = "meshwright: 1\ntopology: v5e:2x2\nmesh: {%s}\ntensors:\n"
    rules = "  params: {shard: {device_assignment: [[0, 1, 2, 3]]}}\n  batch: replicate\n  out: replicate\n"
    mw.estimate(loads(told % "a: {size: 2, over: [x]}, b: {size: 2, over: [y]}" + rules, "p"), step, ARGS)
    other = mw.estimate(loads(told % "a: {size: 2, over: [y]}, b: {size: 2, over: [x]}" + rules, "p"), step, ARGS)
    layouts = {tensor.path: tensor.axes for tensor in other.tensors}
    assert layouts["params"] == ((), ("b", "a"))


def test_graphs_are_forgotten_with_their_steps_and_are_bounded() -> None:
    cache = GraphCache()
    known = Known(graph=None, kinds={}, notes=(), order=None)
    step = product()
    for key in range(MAX_GRAPHS + 3):
        cache.put(step, key, known)
    assert cache.get(step, 0, b"") is None
    assert cache.get(step, MAX_GRAPHS + 2, b"any order") is known
    del step
    gc.collect()
    assert len(cache.by_step) == 0
    cache.put([], "key", known)
    assert cache.get([], "key", b"") is None


def test_a_step_that_was_estimated_can_be_forgotten() -> None:
    before = len(estimate_module._GRAPHS.by_step)
    step = product()
    mw.estimate(plan(), step, ARGS)
    assert len(estimate_module._GRAPHS.by_step) == before + 1
    del step
    jax.clear_caches()
    gc.collect()
    assert len(estimate_module._GRAPHS.by_step) == before


def codes(told: Plan) -> list[str]:
    with pytest.raises(PlanError) as refused:
        mw.estimate(told, product(), ARGS)
    return sorted(problem.code for problem in refused.value.problems)


def test_all_that_is_wrong_is_said_at_once() -> None:
    assert codes(plan(params="auto")) == ["MW303"]
    assert codes(replace(plan(), topology=None)) == ["MW410"]
    assert codes(replace(plan(params="K@modle N"), topology=None)) == ["MW106", "MW410"]
    assert codes(plan("v5e:4x8", params="auto")) == ["MW210", "MW303"]
    assert codes(plan("v99:4", params="K@model N B")) == ["MW104", "MW202"]


def test_work_in_loops_and_in_regions_of_one_device_counts_for_all() -> None:
    values = (Value((4, 8), "f32"), Value((8, 2), "f32"), Value((4, 2), "f32"))
    dot = Op(
        kind="dot_general",
        operands=(0, 1),
        results=(2,),
        attributes={"lhs_contracting_dimensions": (1,), "precision_config": ("HIGHEST", "DEFAULT")},
    )
    inner = Graph(values=values, ops=(dot,), arguments=(0, 1), results=(2,))
    loop = Op(kind="while", operands=(0, 1), results=(2,), bodies=(inner,), trips=5)
    region = Op(kind="manual_computation", bodies=(inner,), attributes={"manual_axes": ("x",)})
    graph = Graph(values=values, ops=(loop, region), arguments=(0, 1), results=(2,), mesh={"x": 3, "y": 7})
    assert matrix_work(graph, graph.mesh) == {("f32", "highest"): 2 * 4 * 8 * 2 * (5 + 3)}


def test_a_permute_goes_from_layout_to_layout() -> None:
    machine = physical(parse_topology("v5e:2x4"))
    mesh = loads("meshwright: 1\ntopology: v5e:2x4\nmesh: {x: 2, y: 4}\n", "p").mesh
    priced = tariff(mesh, machine, {"x": 2, "y:(1)2": 2, "y:(2)2": 2})
    attributes = {"axes": ("x", "y:(1)2"), "source": (("x",), ("y:(1)2",)), "target": (("y:(1)2",), ("x",))}
    pairs = priced._pairs(Op(kind="collective-permute", attributes=attributes), ("x", "y:(1)2"))
    expected = {(x * 4 + major * 2 + minor, major * 4 + x * 2 + minor) for x, major, minor in np.ndindex(2, 2, 2)}
    assert set(map(tuple, pairs.tolist())) == expected


MODEL = """\
import jax

def model(width=64):
    shape = jax.ShapeDtypeStruct((width, width), "float32")
    return lambda params, batch: batch @ params, (shape, shape)
"""
TEXT = """\
meshwright: 1
name: small
model: mw_priced:model
topology: v5e:2x2
mesh: {data: 2, model: 2}
tensors:
  params: K@model N
  batch: B@data K@model
  out: B@data N
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mw_priced.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "plan.yaml"
    path.write_text(TEXT)
    return path


def run(*arguments: object) -> int:
    return cli.main([str(a) for a in arguments])


def test_the_command_answers_in_json_and_in_a_sentence(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("estimate", file, "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["schema_version"], said["command"], said["what"], said["fits"]) == (1, "estimate", "predicted", True)
    assert said["step_time_s"] == pytest.approx(said["compute_s"] + said["comm_s"])
    assert said["collective_bytes"] == {"all-reduce": 32 * 64 * F32}
    assert "kernels" not in said
    assert run("estimate", file) == 0
    streams = capsys.readouterr()
    assert streams.out == ""
    assert "small fits v5e:2x2: a device needs" in streams.err
    assert streams.err.strip().endswith("Predicted.")


def test_what_does_not_fit_is_1(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(TEXT + "limits: {hbm: 1 KiB}\n")
    assert run("estimate", file) == 1
    assert run("explain", file, "--json") == 1
    streams = capsys.readouterr()
    assert json.loads(streams.out)["fits"] is False
    assert "does not fit" in streams.err


def test_explain_shows_tables_and_writes_a_page(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = file.parent / "page.html"
    assert run("explain", file, "--html", page) == 0
    err = capsys.readouterr().err
    for title in ("Time of a step", "Operations that take longest", "Largest tensors", "Communication by source line"):
        assert title in err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert run("explain", file, "--html", file.parent / "none" / "page.html") == 2
    assert "MW412" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["estimate", "explain"])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("params: K@model N", "params: auto", "MW303"),
        ("v5e:2x2", "v99:2x2", "MW202"),
        ("topology: v5e:2x2\n", "", "MW410"),
        ("model: mw_priced:model\n", "", "MW301"),
        ("mw_priced:model", "mw_priced:models", "MW311"),
        ("batch: B@data", "batsh: B@data", "MW101"),
    ],
)
def test_what_cannot_be_priced_is_a_problem(
    command: str, old: str, new: str, said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(TEXT.replace(old, new))
    assert run(command, file) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_not_there_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", tmp_path / "none.yaml", "--json") == 2
    streams = capsys.readouterr()
    assert json.loads(streams.out)["problems"][0]["code"] == "MW001"


def test_diff_says_what_a_change_costs(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = file.parent / "other.yaml"
    other.write_text(TEXT.replace("K@model N", "K N").replace("B@data K@model", "B@data K"))
    assert run("diff", file, other, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert len(said["changes"]) == 2
    assert said["cost"]["collective_bytes"]["all-reduce"] == {"before": 8192, "after": 0, "change": -8192}
    assert said["cost"]["what"] == "predicted"
    assert said["no_cost_because"] is None
    assert run("diff", file, other) == 1
    streams = capsys.readouterr()
    assert streams.out.count("\n") == 2
    assert "What the change costs or saves, predicted" in streams.err
    assert "communicated: all-reduce" in streams.err
    assert run("diff", file, file) == 0
    assert capsys.readouterr().err == ""


def test_diff_says_why_a_change_has_no_price(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = file.parent / "other.yaml"
    other.write_text(TEXT.replace("params: K@model N", "params: auto"))
    assert run("diff", file, other, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said["cost"] is None
    assert "MW303" in said["no_cost_because"]
