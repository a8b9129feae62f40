"""A planned step computes what the plain step computes, and lies where the plan says."""

import functools

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import optax
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from layouts import assert_close, assert_layouts
from meshwright.backends.jax.trace import trace
from random_plans import random_plan

D, H, B, L = 16, 32, 32, 3


def forward(params, x):
    def block(x, w):
        h = mw.tag(jax.nn.relu(x @ w["wi"]), "block/hidden")
        return x + mw.tag(h @ w["wo"], "block/out"), None

    x, _ = jax.lax.scan(mw.remat(block, prevent_cse=False), x, params["blocks"])
    return mw.tag(x @ params["head"], "logits")


TX = optax.adam(1e-2)


def step(params, opt, batch):
    def loss(params):
        return ((forward(params, batch["x"]) - batch["y"]) ** 2).mean()

    value, grads = jax.value_and_grad(loss)(params)
    updates, opt = TX.update(grads, opt, params)
    return optax.apply_updates(params, updates), opt, {"loss": value, "grads": grads}


def concrete(seed=0):
    k = iter(jax.random.split(jax.random.key(seed), 6))
    normal = jax.random.normal
    blocks = {"wi": normal(next(k), (L, D, H)) / 4, "wo": normal(next(k), (L, H, D)) / 4}
    params = {"blocks": blocks, "head": normal(next(k), (D, 8))}
    return params, TX.init(params), {"x": normal(next(k), (B, D)), "y": normal(next(k), (B, 8))}


@functools.cache
def expected():
    return jax.jit(step)(*concrete())


ARGS = jax.eval_shape(concrete)

PLAN = """
meshwright: 1
topology: cpu:8
mesh: {data: 4, model: 2}
tensors:
  params/blocks/wi: L D H@model
  params/blocks/wo: L H@model D
  params/**: replicate
  opt/**: like params
  batch/**: B@data ...
  acts/block/hidden: B@data H@model
  out/2/grads/**: replicate
"""


def on_cpu(mesh, tensors, topology="cpu:8"):
    return f"meshwright: 1\ntopology: {topology}\nmesh: {mesh}\ntensors: {tensors}\n"


def plan(text=PLAN, **changes):
    for old, new in changes.items():
        text = text.replace(old, new)
    return mw.loads(text)


def test_a_planned_step_computes_the_same():
    args = concrete()
    fast = mw.apply(plan(), step, ARGS)
    assert_close(fast(*args), expected())


@pytest.mark.parametrize("seed", range(10))
def test_random_legal_plans_compute_the_same_and_lie_as_planned(seed):
    traced = trace(step, ARGS)
    fast = mw.apply(random_plan(traced.tensors, seed), step, ARGS)
    assert_close(fast(*concrete()), expected())
    compiled = fast.lower(*ARGS).compile()
    assert_layouts(fast, compiled)


def test_tagged_values_and_their_gradients_lie_as_planned():
    def probe(w, x):
        def loss(x):
            return (mw.tag(x @ w, "h") ** 2).sum()

        h = mw.tag(x @ w, "h")
        gradient = jax.vjp(lambda h: (mw.tag(h, "h") ** 2).sum(), h)[1](1.0)[0]
        return h, gradient, jax.grad(loss)(x)

    text = on_cpu("{a: 2, b: 4}", "{w: replicate, x: replicate, acts/h: I@b J@a, out/**: infer}")
    args = (jnp.ones((8, 8)), jnp.ones((16, 8)))
    fast = mw.apply(mw.loads(text), probe, args)
    want = NamedSharding(fast.mesh, PartitionSpec("b", "a"))
    h, gradient, _ = fast.lower(*args).compile().output_shardings
    assert h.is_equivalent_to(want, 2)
    assert gradient.is_equivalent_to(want, 2)


@pytest.mark.parametrize("remat", ["none", "full", "dots", "{save: [block/hidden]}"])
def test_remat_changes_no_value(remat):
    fast = mw.apply(plan(PLAN + f"remat: {remat}\n"), step, ARGS)
    assert_close(fast(*concrete()), expected())
    assert (fast.traced.num_remat_blocks > 0) == (remat != "none")


def test_remat_without_blocks_is_refused():
    with pytest.raises(mw.PlanError, match="MW304"):
        mw.apply(mw.loads(on_cpu("{a: 8}", "{x: replicate}") + "remat: full\n"), lambda x: x, (jnp.ones(8),))


def test_donation_is_kept():
    jitted = jax.jit(step, donate_argnums=(0, 1))
    compiled = mw.apply(plan(), jitted, ARGS).lower(*ARGS).compile()
    assert compiled.memory_analysis().alias_size_in_bytes > 0
    assert mw.apply(plan(), step, ARGS).lower(*ARGS).compile().memory_analysis().alias_size_in_bytes == 0
    assert (
        mw.apply(plan(), step, ARGS, donate_argnums=0).lower(*ARGS).compile().memory_analysis().alias_size_in_bytes > 0
    )


def test_a_device_order_is_honoured():
    text = on_cpu("{a: {size: 4, over: [y]}, b: {size: 2, over: [x]}}", "{x: I@a J@b}", topology="cpu:2x4")
    fast = mw.apply(mw.loads(text), lambda x: x * 2, (jnp.ones((4, 2)),))
    out = fast(np.arange(8.0, dtype=np.float32).reshape(4, 2))
    held = {int(s.data[0, 0]) // 2: s.device.id for s in out.addressable_shards}
    assert held == {0: 0, 1: 4, 2: 1, 3: 5, 4: 2, 5: 6, 6: 3, 7: 7}


def test_an_explicit_device_assignment_is_honoured():
    numbers = [[0, 2, 4, 6], [1, 3, 5, 7]]
    text = on_cpu("{a: 8}", f"{{x: {{shard: {{device_assignment: {numbers}}}}}}}")
    fast = mw.apply(mw.loads(text), lambda x: x * 2, (jnp.ones((2, 4)),))
    out = fast(np.arange(8.0, dtype=np.float32).reshape(2, 4))
    held = {int(s.data[0, 0]) // 2: s.device.id for s in out.addressable_shards}
    assert [held[i] for i in range(8)] == [0, 2, 4, 6, 1, 3, 5, 7]


@pytest.mark.parametrize(
    ("use", "beside"),
    [(mw.apply, {"MW101"}), (mw.estimate, {"MW101"}), (lambda plan, *step: mw.search(*step, plan=plan), set())],
)
def test_a_device_assignment_that_is_no_order_of_axes_is_told_of_its_tensor_with_all_else(use, beside):
    rules = "{x: {shard: {device_assignment: [[7, 6, 5, 4], [3, 2, 1, 0]]}}, y: replicate}"
    with pytest.raises(mw.PlanError) as caught:
        use(mw.loads(on_cpu("{a: 8}", rules)), lambda x: x * 2, (jnp.ones((2, 4)),))
    found = {p.code: p for p in caught.value.problems}
    assert set(found) == {"MW224", *beside}
    assert "'x'" in found["MW224"].message
    assert found["MW224"].place.line > 1


def test_verbs_in_place_are_honoured():
    def model(x):
        return mw.split(x * 2, 1, "a"), mw.replicate(x + 1), mw.shard(x * 3, [[0, 1, 2, 3], [4, 5, 6, 7]])

    text = on_cpu("{a: 8}", "{x: infer, out/**: infer}")
    x = jnp.ones((8, 8))
    fast = mw.apply(mw.loads(text), model, (x,))
    split, whole, tiled = fast(x)
    assert split.sharding.shard_shape((8, 8)) == (8, 1)
    assert whole.sharding.is_fully_replicated
    assert tiled.sharding.shard_shape((8, 8)) == (4, 2)


def test_padding_is_said_and_keeps_the_shapes():
    text = on_cpu("{a: 8}", "{x: N@a!pad D, w: replicate, out: N@a!pad K}")
    x, w = jnp.arange(60.0).reshape(30, 2), jnp.ones((2, 3))
    fast = mw.apply(mw.loads(text), lambda x, w: x @ w, (x, w))
    out = fast(x, w)
    assert out.shape == (30, 3)
    np.testing.assert_allclose(out, x @ w)
    assert '[{"a"}, {}]' in fast.lower(x, w).as_text()


def test_a_step_that_asks_something_of_the_compiler_can_be_called_in_others(monkeypatch):
    asked = {"xla_asked_for": "true"}  # no compiler knows it: whoever is given it says so
    monkeypatch.setattr("meshwright.backends.jax.planned._is_compiled_for_tpu", lambda mesh: True)
    monkeypatch.setattr("meshwright.backends.jax.planned.compiler_options", lambda closed: asked)
    w = jnp.arange(8.0)
    fast = mw.apply(plan(on_cpu("{a: 8}", "{w: D@a}")), lambda w: w * w + w, (w,))
    for top in (fast, lambda w: fast.lower(w).compile()):
        with pytest.raises(jax.errors.JaxRuntimeError, match="xla_asked_for"):
            top(w)
    once = w * w + w
    np.testing.assert_array_equal(jax.jit(lambda w: fast(w) * 2)(w), once * 2)
    np.testing.assert_array_equal(jax.jit(lambda y: fast(w) + y)(1.0), once + 1)
    np.testing.assert_array_equal(jax.lax.scan(lambda w, _: (fast(w), None), w, None, length=2)[0], once * once + once)
    np.testing.assert_array_equal(jax.grad(lambda w: fast(w).sum())(w), 2 * w + 1)
    assert jax.make_jaxpr(fast)(w).out_avals[0].shape == jax.eval_shape(fast, w).shape == (8,)


def test_holes_are_refused():
    with pytest.raises(mw.PlanError, match="MW303"):
        mw.apply(mw.loads("meshwright: 1\nmesh: {a: 8}\ntensors: {x: auto}\n"), lambda x: x, (jnp.ones(8),))


def test_other_arguments_than_planned_for_are_refused_with_what_differs():
    fast = mw.apply(plan(), step, ARGS)
    params, opt, batch = concrete()
    with pytest.raises(mw.PlanError, match=r"MW308.*batch/x float32\[32,16\] is float32\[8,16\]"):
        fast(params, opt, {"x": batch["x"][:8], "y": batch["y"]})
    with pytest.raises(mw.PlanError, match=r"batch/z float32\[32,8\] is new"):
        fast(params, opt, {"x": batch["x"], "z": batch["y"]})
    with pytest.raises(mw.PlanError, match="MW308"):
        fast(params, opt)


def test_a_plan_for_another_workload_is_refused_with_what_changed():
    from dataclasses import replace

    from meshwright.backends.jax.fingerprint import fingerprint
    from meshwright.dsl.plan import Result

    made = replace(plan(), result=Result(status="optimal", fingerprint=fingerprint(trace(step, ARGS), {"B": 32})))
    mw.apply(made, step, ARGS)
    wider = jax.eval_shape(lambda: (concrete()[0], concrete()[1], {"x": jnp.ones((64, D)), "y": jnp.ones((64, 8))}))
    with pytest.raises(mw.PlanError, match=r"MW307.*dim B was 32, is 64.*'batch' had 2 tensors"):
        mw.apply(made, step, wider)
    assert mw.loads(mw.dumps(made)) == made


def test_place_puts_state_where_the_plan_says():
    params, opt, batch = concrete()
    p = plan()
    placed, placed_opt = mw.place(p, (params, opt), step, ARGS)
    assert placed["blocks"]["wi"].sharding.shard_shape((L, D, H)) == (L, D, H // 2)
    assert placed_opt[0].mu["blocks"]["wi"].sharding.shard_shape((L, D, H)) == (L, D, H // 2)
    assert mw.place(p, batch, step, ARGS)["x"].sharding.shard_shape((B, D)) == (B // 4, D)
    assert mw.place(p, params, name="params")["head"].sharding.is_fully_replicated
    fast = mw.apply(p, step, ARGS)
    assert_close(fast(placed, placed_opt, mw.place(p, batch, name="batch")), expected())


def test_every_problem_is_reported_at_once():
    text = PLAN.replace("H@model", "H@modle", 1).replace("B@data ...", "B@data X Y Z") + "limits: {hbm: 1 GiB}\n"
    with pytest.raises(mw.PlanError) as caught:
        mw.apply(mw.loads(text), step, ARGS)
    assert len(caught.value.problems) >= 2


def elsewhere(x):
    """An array as ``jax.make_mesh`` makes users put it: on explicit axes of their own."""
    return jax.device_put(x, NamedSharding(jax.make_mesh((8,), ("z",)), PartitionSpec("z")))


def test_shardings_that_the_planning_arguments_have_are_left_aside():
    params, opt, batch = concrete()
    fast = mw.apply(plan(), step, (params, opt, jax.tree.map(elsewhere, batch)))
    assert_close(fast(params, opt, batch), expected())


def test_arguments_that_lie_elsewhere_are_refused_by_name():
    params, opt, batch = concrete()
    with pytest.raises(mw.PlanError, match=r"MW318.*batch/x"):
        mw.apply(plan(), step, ARGS)(params, opt, jax.tree.map(elsewhere, batch))


def test_python_numbers_are_arguments_too():
    fast = mw.apply(mw.loads(on_cpu("{a: 8}", "{'**': replicate}")), lambda a, b: a + b, (1.5, 2))
    assert fast(1.5, 2) == 3.5


def test_arguments_can_be_named():
    params, opt, batch = concrete()
    fast = mw.apply(plan(), step, ARGS)
    assert_close(fast(params, batch=batch, opt=opt), expected())
    assert fast.lower(params=params, opt=opt, batch=batch).as_text() == fast.lower(params, opt, batch).as_text()
    with pytest.raises(mw.PlanError, match=r"MW308.*bach is new"):
        fast(params, opt, bach=batch)


def test_static_arguments_are_refused():
    jitted = jax.jit(lambda x, mode: x, static_argnames="mode")
    with pytest.raises(mw.PlanError, match="MW317"):
        mw.apply(mw.loads(on_cpu("{a: 8}", "{x: replicate}")), jitted, (jnp.ones(8), "train"))


@pytest.mark.parametrize("devices", [[0] * 8, range(8)])
def test_devices_must_be_different_ones(devices):
    chosen = [jax.devices()[0] for _ in devices] if isinstance(devices, list) else devices
    with pytest.raises(mw.PlanError, match="MW319"):
        mw.apply(plan(), step, ARGS, devices=chosen)


@pytest.mark.tpu_compiler
def test_nothing_runs_on_devices_that_are_not_here():
    elsewhere = mw.loads(on_cpu("{a: 8}", "{x: I@a}", topology="v3:2x2"))
    with pytest.raises(mw.PlanError, match="MW406"):
        mw.apply(elsewhere, lambda x: x, (jnp.ones(8),))(jnp.ones(8))
    with pytest.raises(mw.PlanError, match="MW406"):
        mw.place(elsewhere, jnp.ones(8), name="x")


def manual_step(manual):
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(jax.sharding.AxisType.Auto,) * 2)

    def local(w, x):
        return jax.lax.psum(mw.tag(jnp.tanh(x @ w), "h").sum(), "b")

    specs = {"in_specs": (PartitionSpec(), PartitionSpec("b")), "out_specs": PartitionSpec()}
    return jax.value_and_grad(jax.shard_map(local, mesh=mesh, axis_names=manual, **specs))


@pytest.mark.parametrize(
    ("manual", "layout"),
    [({"b"}, "I@a J"), ({"b"}, "I J@a"), ({"b"}, "replicate"), ({"a", "b"}, "replicate"), ({"a", "b"}, "infer")],
)
def test_values_in_a_manual_region_are_split_over_the_other_axes(manual, layout):
    text = on_cpu("{a: 2, b: 4}", f"{{w: replicate, x: B@b D, acts/h: {layout}, out/**: infer}}")
    args = (jax.random.normal(jax.random.key(0), (8, 8)), jax.random.normal(jax.random.key(1), (16, 8)))
    assert_close(mw.apply(mw.loads(text), manual_step(manual), args)(*args), jax.jit(manual_step(manual))(*args))


@pytest.mark.parametrize("manual", [{"b"}, {"a", "b"}])
def test_a_manual_regions_own_axes_are_refused_inside(manual):
    text = on_cpu("{a: 2, b: 4}", "{w: replicate, x: B@b D, acts/h: I@b J, out/**: infer}")
    with pytest.raises(mw.PlanError, match=r"MW316.*acts/h.*over b"):
        mw.apply(mw.loads(text), manual_step(manual), (jnp.ones((8, 8)), jnp.ones((16, 8))))


def momentum_step(params, mu, batch):
    return params, mu, (batch @ params["w"]).sum()


MOMENTUM = ({"w": jnp.ones((8, 8))}, {"w": jnp.ones((8, 8))}, jnp.ones((16, 8)))


def momentum_plan():
    return mw.loads(on_cpu("{a: 2, b: 4}", "{params/**: I@a J, mu/**: I J@b, batch: B@b D}"))


def test_place_asks_which_of_two_alike_arguments_is_meant():
    params, mu, _ = MOMENTUM
    with pytest.raises(mw.PlanError, match=r"MW309.*params, mu"):
        mw.place(momentum_plan(), mu, momentum_step, MOMENTUM)
    assert mw.place(momentum_plan(), mu, momentum_step, MOMENTUM, name="mu")["w"].sharding.shard_shape((8, 8)) == (8, 2)
    placed = mw.place(momentum_plan(), [params, mu], momentum_step, MOMENTUM)
    assert [x["w"].sharding.shard_shape((8, 8)) for x in placed] == [(4, 8), (8, 2)]


@pytest.mark.parametrize("value", [{"w": jnp.ones((4, 8))}, (*MOMENTUM, jnp.ones(3)), {"v": jnp.ones((8, 8))}])
def test_place_refuses_what_is_no_argument_of_the_step(value):
    with pytest.raises(mw.PlanError, match=r"MW310.*params, mu, batch"):
        mw.place(momentum_plan(), value, momentum_step, MOMENTUM)


@pytest.mark.parametrize("named", ["mu", None])
def test_place_says_which_shapes_of_a_named_argument_are_others(named):
    value = {"w": jnp.ones((4, 8))}
    with pytest.raises(mw.PlanError, match=r"MW310 'mu'.*mu/w float32\[4,8\] is float32\[8,8\] in the step"):
        mw.place(momentum_plan(), value if named else {"mu": value}, momentum_step, MOMENTUM, name=named)
    with pytest.raises(mw.PlanError, match=r"MW310 'mu'.*the step has no mu/v float32\[8,8\]"):
        mw.place(momentum_plan(), {"v": jnp.ones((8, 8))}, momentum_step, MOMENTUM, name="mu")


@pytest.mark.parametrize("given", ["plan.yaml", None])
@pytest.mark.parametrize(
    "use",
    [
        lambda plan: mw.apply(plan, momentum_step, MOMENTUM),
        lambda plan: mw.estimate(plan, momentum_step, MOMENTUM),
        lambda plan: mw.verify(plan, momentum_step, MOMENTUM),
        lambda plan: mw.place(plan, MOMENTUM[0], momentum_step, MOMENTUM, name="mu"),
        lambda plan: mw.adapt(plan, capacity_factor=1.5),
        lambda plan: mw.dumps(plan),
    ],
)
def test_what_is_given_in_place_of_a_plan_is_refused_with_how_to_get_one(use, given):
    with pytest.raises(mw.PlanError, match=r"MW553 plan is .*\n.*meshwright\.load"):
        use(given)


@pytest.mark.parametrize("known", [(), (momentum_step, MOMENTUM)])
def test_place_refuses_an_argument_that_there_is_not(known):
    with pytest.raises(mw.PlanError, match="MW310"):
        mw.place(momentum_plan(), MOMENTUM[0], *known, name="parms")
