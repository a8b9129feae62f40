"""Steps that name meshes of their own: their shardings are over the plan's devices, or they are told what to write."""

import functools

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from jax.sharding import AxisType, PartitionSpec
from layouts import assert_close


def on_cpu(mesh, tensors):
    return f"meshwright: 1\ntopology: cpu:8\nmesh: {mesh}\ntensors: {tensors}\n"


def summed(mesh):
    specs = {"in_specs": (PartitionSpec(), PartitionSpec("b")), "out_specs": PartitionSpec()}
    return jax.shard_map(lambda w, x: jax.lax.psum(jnp.tanh(x @ w).sum(), "b"), mesh=mesh, **specs)


def nested_constraints(mesh):
    """A step that says how its own values lie, over a mesh of devices."""

    @functools.partial(jax.jit, in_shardings=jax.NamedSharding(mesh, PartitionSpec("b")))
    def inner(x):
        return jax.lax.with_sharding_constraint(jnp.tanh(x), jax.NamedSharding(mesh, PartitionSpec(None, "a")))

    return lambda x: inner(x) + jax.lax.with_sharding_constraint(x, jax.NamedSharding(mesh, PartitionSpec()))


def test_shardings_that_a_step_gives_over_devices_of_its_own_are_over_the_plans():
    step = nested_constraints(jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2))
    text = on_cpu("{b: 4, a: 2}", "{x: I@a J, out: I J}")
    x = jax.random.normal(jax.random.key(0), (8, 8))
    planned = mw.apply(mw.loads(text), step, (x,), devices=jax.devices()[::-1])
    assert_close(planned(x), jnp.tanh(x) + x)


@pytest.mark.parametrize(
    "step",
    [
        lambda x, mesh: jax.reshard(x, jax.NamedSharding(mesh, PartitionSpec("a"))) * 2,
        lambda x, mesh: jax.jit(lambda x: x * 2, out_shardings=jax.NamedSharding(mesh, PartitionSpec("a")))(x),
    ],
)
def test_a_step_whose_types_say_how_it_is_split_is_refused(step):
    mesh = jax.make_mesh((2, 4), ("a", "b"))
    with pytest.raises(mw.PlanError, match=r"MW322.*\(a, b\)"):
        mw.apply(
            mw.loads(on_cpu("{a: 2, b: 4}", "{x: I@a J, out: infer}")), lambda x: step(x, mesh), (jnp.ones((8, 8)),)
        )


def test_a_region_over_devices_that_the_plan_has_not_so_is_refused():
    text = on_cpu("{a: 2, b: 4}", "{w: replicate, x: B@b D, out/**: infer}")
    mesh = jax.make_mesh((2, 4), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    args = (jnp.ones((8, 8)), jnp.ones((16, 8)))
    with pytest.raises(mw.PlanError, match=r"MW321.*\{a: 2, b: 4\}(.|\n)*AbstractMesh\(\(2, 4\), \('a', 'b'\)\)"):
        mw.apply(mw.loads(text), summed(mesh), args, devices=jax.devices()[::-1])
