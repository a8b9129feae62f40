"""Loops in the program: what they carry keeps one layout, and is entered once; state comes back as it went in."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import pytest
from in_process import search
from meshwright.backends.jax.drafts import Drafts
from meshwright.dsl.machine import parse_topology
from meshwright.dsl.reader import loads
from meshwright.planner.graph import Origin, Sharding
from meshwright.planner.program import build
from meshwright.planner.program.solving.decode import laid_out, laid_out_step
from meshwright.planner.program.solving.named import named_layouts
from meshwright.planner.program.wiring.wires import Wiring
from meshwright.planner.solver.solve import solve
from meshwright.planner.topology import physical
from small_graphs import exact_of, nothing, promised_s
from small_steps import Pair, program_of, scanned, shape, trained

TOPOLOGY = "v5e:2x2"


def carried(turns: int) -> Pair:
    """Carries two values in turn through products."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        def turn(state: tuple[jax.Array, jax.Array], _: None) -> tuple[tuple[jax.Array, jax.Array], None]:
            x, y = state
            return (jnp.tanh(x @ params["w"]), x + y), None

        return jnp.mean(jax.lax.scan(turn, (x, x), None, length=turns)[0][1] ** 2)

    return trained(loss, {"w": shape(1024, 1024)}, shape(4096, 1024))


STEPS = {"a stack of layers": scanned(2048, 512, 1024, 4), "two values in turn": carried(3)}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("mesh", ["{a: 4}", "{a: 2, b: 2}"])
def test_what_a_loop_carries_keeps_one_layout(name: str, mesh: str) -> None:
    workload = Drafts(*STEPS[name])
    plan = loads(f"meshwright: 1\ntopology: {TOPOLOGY}\nmesh: {mesh}\n")
    returned = {tensor.path: tensor.returns for tensor in workload.tensors if tensor.returns}
    program = build(workload.graph(plan), plan.mesh, physical(parse_topology(TOPOLOGY)), returned=returned)
    found = program.solve()
    assert found.layouts is not None
    assert {found.layouts[result] == found.layouts[argument] for result, argument in returned.items()} == {True}
    first = [0] * len(program.wiring.nodes)
    for choices in (first, [len(node.costs) - 1 for node in program.wiring.nodes]):
        loops_agree(program.wiring, choices)


def loops_agree(wiring: Wiring, choices: list[int]) -> None:
    """Whatever is chosen, a loop's results lie as what it carries does, which is what its body ends with."""
    laid = laid_out_step(wiring, choices, label=lambda node, _: Origin(source=str(node)))
    checked = 0
    for inner, op, _ in laid.walk():
        if op.kind != "while":
            continue
        (body,) = op.bodies
        for result, made in zip(op.results, body.arguments, strict=False):
            if inner.values[result].shape:
                assert inner.values[result].sharding == body.values[made].sharding
                checked += 1
    assert checked


def begun() -> Pair:
    """A loop that begins with what is computed before it."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return jnp.tanh(x @ w), None

        return jnp.mean(jax.lax.scan(layer, jnp.sin(x), params["w"])[0] ** 2)

    return trained(loss, {"w": shape(4, 1024, 1024)}, shape(4096, 1024))


def test_what_a_loop_begins_with_is_named_as_the_loop_carries_it() -> None:
    workload = Drafts(*begun())
    plan = loads(f"meshwright: 1\ntopology: {TOPOLOGY}\nmesh: {{a: 4}}\n")
    wiring = build(workload.graph(plan), plan.mesh, physical(parse_topology(TOPOLOGY))).wiring
    body = next(level for level in wiring.levels[1:] if len(level.graph.arguments) > 1)
    carried = next(a for a in body.graph.arguments if body.graph.values[a].shape == (4096, 1024))
    port, seen = body.source[carried], set()
    for choice in range(len(port.layouts)):
        choices = [0] * len(wiring.nodes)
        choices[port.node] = choice
        assert laid_out(wiring, body, choices).layouts[carried] == port.layouts[choice]
        assert named_layouts(wiring, choices)["ops/loss/sin.0"] == port.layouts[choice]
        seen.add(port.layouts[choice])
    assert len(seen) > 1


def cast_before() -> Pair:
    """Layers whose stacked weights are rounded before the loops, forward and backward, that read them."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        def layer(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
            return x + jax.nn.relu(x @ w) @ w.T, None

        y, _ = jax.lax.scan(layer, x, params["w"].astype(jnp.bfloat16))
        return jnp.mean(y.astype(jnp.float32) ** 2)

    return trained(loss, {"w": shape(4, 1024, 4096)}, shape(8192, 1024, dtype=jnp.bfloat16))


def test_what_loops_read_that_was_rounded_before_them_is_gathered_rounded_and_once_for_all() -> None:
    """Where the parameters' and the batch's layouts are given, as under FSDP: a plan says it of what was rounded."""
    workload = Drafts(*cast_before())
    plan = loads("meshwright: 1\ntopology: v5e:2x4\nmesh: {a: 8}\n")
    returned = {tensor.path: tensor.returns for tensor in workload.tensors if tensor.returns}
    pins: dict[str, Sharding] = {"params/w": ((), ("a",), ()), "batch0": (("a",), ())}
    machine = physical(parse_topology("v5e:2x4"))
    program = build(workload.graph(plan), plan.mesh, machine, pins=pins, returned=returned)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    took = exact_of(program, choices).estimate
    gathers = [(each.num_bytes, each.times) for each in took.collectives if each.kind == "all-gather"]
    assert gathers == [(4 * 1024 * 4096 * 2, 1)]
    assert named_layouts(program.wiring, choices)["ops/loss/convert_element_type.0"] == ((), (), ())
    assert promised_s(program, choices) == pytest.approx(took.step_time_s, rel=0.15)


def test_longer_loops_cost_more_and_are_laid_out_alike() -> None:
    prices = []
    for layers in (4, 16):
        workload = Drafts(*scanned(2048, 512, 1024, layers))
        plan = loads(f"meshwright: 1\ntopology: {TOPOLOGY}\nmesh: {{a: 4}}\n")
        program = build(workload.graph(plan), plan.mesh, physical(parse_topology(TOPOLOGY)))
        prices.append((len(program.wiring.nodes), program.solve().objective_s))
    assert prices[0][0] == prices[1][0]
    assert 2 < prices[1][1] / prices[0][1] < 8


def summed_before() -> Pair:
    """A product, over dims that may be split, with which a loop begins."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        def turn(state: jax.Array, _: None) -> tuple[jax.Array, None]:
            return jnp.tanh(state @ params["w"]), None

        return jnp.mean(jax.lax.scan(turn, x @ params["first"], None, length=12)[0] ** 2)

    return trained(loss, {"first": shape(2048, 1024), "w": shape(1024, 1024)}, shape(4096, 2048))


def test_no_sum_that_is_cut_for_a_loop_takes_less_than_nothing() -> None:
    """It is added up once, however often the loop turns."""
    workload = Drafts(*summed_before())
    plan = loads(f"meshwright: 1\ntopology: {TOPOLOGY}\nmesh: {{a: 2, b: 2}}\n")
    wiring = build(workload.graph(plan), plan.mesh, physical(parse_topology(TOPOLOGY))).wiring
    assert wiring.together
    for node, value, _ in wiring.scattered:
        sums = [each for ends, each in wiring.together.items() if node in ends and value in wiring.nodes[node].sums]
        assert sums
        assert all(-each.min() <= wiring.nodes[node].costs.max() for each in sums)


def accumulated(turns: int = 2) -> Pair:
    """A step whose gradient is added up over parts of its batch: every weight is read twice on each turn."""

    def loss(params: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.mean((x @ params["w"] @ params["v"] - x @ params["u"]) ** 2)

    def step(params: dict[str, jax.Array], batch: jax.Array) -> dict[str, jax.Array]:
        def turn(total: dict[str, jax.Array], part: jax.Array) -> tuple[dict[str, jax.Array], None]:
            return jax.tree.map(jnp.add, total, jax.grad(loss)(params, part)), None

        zeros = jax.tree.map(jnp.zeros_like, params)
        total, _ = jax.lax.scan(turn, zeros, batch.reshape(turns, -1, batch.shape[1]))
        return jax.tree.map(lambda w, g: w - 0.01 * g, params, total)

    return step, ({"w": shape(2048, 1024), "v": shape(1024, 4096), "u": shape(2048, 4096)}, shape(16384, 2048))


def test_what_is_read_whole_in_a_loop_is_cut_by_none_of_its_readers() -> None:
    """Propagation would have it cut before the loop for all, and gathered on every turn: plans took a third longer than
    what they were written of.
    """
    found = search(*accumulated(), topology="h100:1x8", mesh={"x": 4, "y": 2})
    (own,) = (row for row in found.candidates if row.objective_s is not None and math.isfinite(row.objective_s))
    assert own.step_time_s == pytest.approx(own.objective_s, rel=0.01)


def test_what_is_added_up_over_turns_is_added_up_in_each_where_the_loop_carries_it_otherwise() -> None:
    """As in a state space model: a decay's gradient is added up behind the loop, unless its carry is a part of it."""

    def loss(params: dict[str, jax.Array], x: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
        def turn(state: jax.Array, given: tuple[jax.Array, ...]) -> tuple[jax.Array, jax.Array]:
            x, b, c = given
            state = state * jnp.exp(x[..., None] * params["decay"]) + x[..., None] * b[:, None]
            return state, jnp.einsum("bes,bs->be", state, c)

        return jnp.mean(jax.lax.scan(turn, jnp.zeros((32, 256, 16)), (x, b, c))[1] ** 2)

    pair = trained(loss, {"decay": shape(256, 16)}, shape(64, 32, 256), shape(64, 32, 16), shape(64, 32, 16))
    by_batch: Sharding = ((), ("a",), ())
    pins: dict[str, Sharding] = {"params/decay": (("a",), ()), **{f"batch{i}": by_batch for i in range(3)}}
    program = program_of(pair, "v5e:2x4", "{a: 8}", pins=pins)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    took = exact_of(program, choices).estimate
    assert [each.times for each in took.collectives if each.kind == "all-reduce"] == [1, 1]
    assert promised_s(program, choices) == pytest.approx(took.step_time_s, rel=0.01)


def test_of_a_sum_in_a_loop_that_is_cut_first_only_the_rest_is_behind_the_loop() -> None:
    """A cell's gradient of which devices along ``x`` keep parts: compiled for v5e:4x4 and v4:2x2x2 a reduce-scatter of
    2 MiB in every turn, and an all-reduce of 512 KiB along ``y`` behind the loop. So it is carried whole.
    """

    def step(w: jax.Array, xs: jax.Array) -> jax.Array:
        def loss(w: jax.Array) -> jax.Array:
            def turn(state: jax.Array, x: jax.Array) -> tuple[jax.Array, None]:
                return jnp.tanh(x + state @ w), None

            return jnp.mean(jax.lax.scan(turn, jnp.zeros_like(xs[0]), xs)[0].astype(jnp.float32) ** 2)

        return jax.grad(loss)(w)

    args = (jax.ShapeDtypeStruct((1024, 1024), "bfloat16"), jax.ShapeDtypeStruct((32, 256, 1024), "bfloat16"))
    pins: dict[str, Sharding] = {"w": ((), ()), "xs": ((), ("x", "y"), ()), "out": ((), ("x",))}
    program = program_of((step, args), "v5e:4x4", "{x: 4, y: 4}", pins=pins)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    choices = program.choices(found.choices)
    took = exact_of(program, choices).estimate
    assert [each.times for each in took.collectives if each.num_bytes > 2**16] == [1]
    assert promised_s(program, choices) == pytest.approx(took.step_time_s, rel=0.05)


def decoded(params: jax.Array, cache: jax.Array, x: jax.Array, at: jax.Array) -> tuple[jax.Array, jax.Array]:
    """One token through layers that keep what they saw before: each layer's part of the cache is read and stacked."""

    def layer(x: jax.Array, given: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        weights, keys = given
        keys = jax.lax.dynamic_update_slice(keys, (x @ weights)[:, None], (0, at, 0))
        scores = jnp.einsum("bm,bsm->bs", x, keys)
        return x + jnp.einsum("bs,bsm->bm", jax.nn.softmax(scores), keys), keys

    return jax.lax.scan(layer, x, (params, cache))


def test_what_a_loop_stacks_where_an_argument_lies_that_it_reads_is_copied() -> None:
    """640 us: (8,64,1024,512) of bfloat16, the cache of eight layers on eight devices."""
    bf16 = jnp.bfloat16
    given = [shape(*sizes, dtype=bf16) for sizes in ((8, 512, 512), (8, 64, 1024, 512), (64, 512))]
    step = jax.jit(decoded, donate_argnums=1)
    pins: dict[str, Sharding] = {"cache": ((), ("a",), (), ()), "x": (("a",), ())}
    program = program_of((step, (*given, shape(dtype=jnp.int32))), "v3:2x2", "{a: 8}", pins=pins)
    found = solve(program.problem(None, nothing(program), guess=False), time_limit_s=60)
    assert found.choices is not None
    exact = exact_of(program, program.choices(found.choices))
    (copy,) = (kernel for kernel in exact.estimate.kernels if kernel.label == "turned-copy")
    assert copy.step_s == pytest.approx(640e-6, rel=0.05)
    unsaid_s = sum(each.seconds for each in exact.missed if not each.nodes)
    assert unsaid_s == pytest.approx(0.0, abs=0.01 * copy.step_s)
