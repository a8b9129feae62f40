"""What a step is predicted to take: the price of one device's program, worked out by hand where that can be done."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from meshwright.backends.jax import estimate as estimate_module
from meshwright.backends.jax.graph_cache import MAX_GRAPHS, GraphCache, Known
from meshwright.dsl.errors import PlanError
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.plan import Limits, Plan
from meshwright.dsl.reader import loads
from meshwright.planner.collectives import price
from meshwright.planner.estimate.roofline import matrix_work
from meshwright.planner.estimate.traffic import tariff
from meshwright.planner.explain.text import tables
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
    step = product()
    estimate = mw.estimate(plan(), step, ARGS)
    (summed,) = estimate.collectives
    assert (summed.kind, summed.axes, summed.group_size, summed.times) == ("all-reduce", ("model",), 2, 1)
    assert summed.num_bytes == summed.total_bytes == B // 2 * N * F32
    assert summed.origin.source.endswith(f"test_estimate.py:{step.__code__.co_firstlineno + 1}")
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
    assert estimate.step_time_s == estimate.compute_s + estimate.uncounted_s + estimate.comm_s
    assert estimate.compute_s == sum(k.predicted_s * k.times for k in estimate.kernels if k.counted) > 0
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


def test_what_a_loop_stacks_up_is_not_filled_before() -> None:
    said = "meshwright: 1\ntopology: v5e:2x2\nmesh: {data: 4}\ntensors:\n  x: replicate\n  out: replicate\n"

    def step(x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda x, _: (jnp.tanh(x), x), x, None, length=4)[1]

    found = mw.estimate(loads(said), jax.jit(step), (jax.ShapeDtypeStruct((B, K), jnp.float32),)).kernels
    assert [(kernel.label, kernel.total_s) for kernel in found if kernel.times == 1] == [("allocate", 0.0)]


def _sums(c: jax.Array, x: jax.Array) -> jax.Array:
    return c + x @ x.T


def _scatters(c: jax.Array, x: jax.Array) -> jax.Array:
    return c.at[x[:, 0].astype(jnp.int32)].add(1.0)


def _writes_a_part(c: jax.Array, x: jax.Array) -> jax.Array:
    return jax.lax.dynamic_update_slice(c, x[:1, :B], (x[0, 0].astype(jnp.int32), 0))


@pytest.mark.tpu_compiler
@pytest.mark.parametrize(
    ("turn", "is_filled"), [(_sums, False), (_scatters, True), (_writes_a_part, True)], ids=["sum", "scatter", "part"]
)
def test_what_a_loop_adds_up_from_nothing_is_not_filled_before(turn: Any, is_filled: bool) -> None:
    """As compiled: on the first turn it adds to the number itself; what it scatters into or updates it is given."""
    plan = loads('meshwright: 1\ntopology: v5e:2x2\nmesh: {data: 4}\ntensors:\n  "**": replicate\n')

    def step(xs: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, x: (turn(c, x), None), jnp.zeros((B, B)), xs)[0]

    args = (jax.ShapeDtypeStruct((4, B, K), jnp.float32),)
    found = mw.estimate(plan, jax.jit(step), args).kernels
    assert any(kernel.label == "broadcast_in_dim" and kernel.times == 1 for kernel in found) == is_filled
    devices = mw.topology("v5e:2x2").devices()
    text = mw.apply(plan, step, args, devices=devices).lower(*args).compile().as_text()
    assert ("AllocateBuffer" not in text) == is_filled


@pytest.mark.parametrize(("turns", "is_filled"), [(4, True), (8, False)])
def test_what_two_loops_stack_up_in_arrays_alike_is_filled_for_each(turns: int, is_filled: bool) -> None:
    """Compiled so for v4, v5e and v6e: a loop is seen to write all of a stack if no other begins with such an array."""
    said = "meshwright: 1\ntopology: v5e:2x2\nmesh: {data: 4}\ntensors:\n  x: replicate\n  out/**: replicate\n"

    def step(x: jax.Array) -> tuple[jax.Array, jax.Array]:
        x, one = jax.lax.scan(lambda x, _: (jnp.tanh(x), x), x, None, length=4)
        return one, jax.lax.scan(lambda x, _: (jnp.sin(x), x), x, None, length=turns)[1]

    found = mw.estimate(loads(said), jax.jit(step), (jax.ShapeDtypeStruct((B, K), jnp.float32),)).kernels
    filling = [kernel for kernel in found if kernel.label in ("allocate", "broadcast_in_dim")]
    assert [kernel.label == "broadcast_in_dim" for kernel in filling] == [is_filled] * 2
    assert all(kernel.total_s > 0 for kernel in filling) == is_filled


def test_a_loop_of_unknown_turns_is_said_to_be_priced_as_one_turn() -> None:
    def step(x: jax.Array) -> jax.Array:
        return jax.lax.while_loop(lambda x: jnp.sum(x) < 100, jnp.tanh, x)

    asked = mw.loads("meshwright: 1\ntopology: v3:2x2\nmesh: {d: 8}\ntensors:\n  x: _@d _\n  out: _@d _\n")
    found = mw.estimate(asked, step, (jax.ShapeDtypeStruct((64, 64), jnp.float32),))
    assert [note for note in found.notes if "one turn of it is priced" in note and "test_estimate.py" in note]


def test_a_loop_is_priced_by_its_turns() -> None:
    told = plan(params="L K@model N", batch="B@data K")
    short, long = (mw.estimate(told, *scanned(layers)) for layers in (4, 96))
    assert len(short.kernels) == len(long.kernels)
    assert [c.num_bytes for c in short.collectives] == [c.num_bytes for c in long.collectives]
    assert {c.times for c in short.collectives} - {1} == {4}
    assert {c.times for c in long.collectives} - {1} == {96}
    turns_s = [sum(kernel.total_s for kernel in told.kernels if kernel.times > 1) for told in (short, long)]
    assert turns_s[1] == pytest.approx(24 * turns_s[0], rel=0.01)


def test_collectives_know_the_weights_whose_gradients_they_add_up() -> None:
    def loss(params: Any, batch: Any) -> jax.Array:
        x, _ = jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), batch["x"] @ params["first"], params["rest"])
        return jnp.mean((x - batch["y"]) ** 2)

    def step(params: Any, opt: Any, batch: Any) -> Any:
        gradients = jax.grad(loss)(params, batch)
        opt = jax.tree.map(lambda m, g: 0.9 * m + g, opt, gradients)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, opt), opt

    shapes = {"first": (K, K), "rest": (3, K, K)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    batch = {name: jax.ShapeDtypeStruct((B, K), jnp.float32) for name in "xy"}
    told = "meshwright: 1\ntopology: v5e:2x2\nmesh: {data: 4}\ntensors:\n  batch/**: B@data K\n  '**': replicate\n"
    estimate = mw.estimate(loads(told, "p"), step, (params, params, batch))
    summed = {c.gradient_of: (c.times, c.total_bytes) for c in estimate.collectives if c.gradient_of}
    assert summed == {("params/first",): (1, K * K * F32), ("params/rest",): (3, 3 * K * K * F32)}
    (shown,) = [table for table in tables(estimate) if table.title.startswith("Gradients")]
    assert {row[0] for row in shown.rows} == {"params/first", "params/rest"}


@pytest.mark.parametrize("topology", ["cpu:4", "h100:4x1", "v3:1x2", "v4:2x1x1", "v5p:2x2x1", "v6e:2x2", "tpu7x:2x1x1"])
def test_every_kind_of_machine_has_a_price(topology: str) -> None:
    estimate = mw.estimate(plan(topology), product(), ARGS)
    assert estimate.comm_s > 0
    assert estimate.fits
    assert estimate.compute_s > 0
    assert estimate.compute_source
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
    assert elsewhere.compute_s != first.compute_s


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
    known = Known(graph=None, kinds={}, returned={}, notes=(), order=None)
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


def test_a_step_that_fills_the_memory_has_a_price() -> None:
    def step(params: Any, opt: Any, batch: Any) -> Any:
        gradients = jax.grad(lambda p: jnp.mean(jnp.tanh(batch @ p["wi"]) @ p["wo"]))(params)
        opt = jax.tree.map(lambda m, g: 0.9 * m + g, opt, gradients)
        return jax.tree.map(lambda p, m: p - 0.1 * m, params, opt), opt

    shapes = {"wi": (8192, 65536), "wo": (65536, 8192)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    told = "meshwright: 1\ntopology: v3:1x1\nmesh: {data: 2}\ntensors: {'**': replicate}\n"
    estimate = mw.estimate(loads(told, "p"), step, (params, params, jax.ShapeDtypeStruct((2048, 8192), jnp.float32)))
    assert estimate.peak_bytes > 0.85 * estimate.limit_bytes
