"""What a model itself lays out, by its verbs or by sharding constraints: a search takes it for given."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from in_process import search
from jax.sharding import AbstractMesh, NamedSharding
from meshwright.backends.jax.drafts import Drafts
from small_steps import shape, trained

MESH = AbstractMesh((4, 2), ("a", "b"))
PLAN = mw.loads("meshwright: 1\ntopology: v5e:2x4\nmesh: {a: 4, b: 2}\n")


def by_constraint(x: jax.Array, *spec: Any) -> jax.Array:
    return jax.lax.with_sharding_constraint(x, NamedSharding(MESH, jax.P(*spec)))


def by_verb(x: jax.Array, *spec: Any) -> jax.Array:
    dim = next(i for i, axis in enumerate(spec) if axis)
    return mw.split(x, dim, spec[dim])


def given(step: Any, *args: Any) -> dict[str, Any]:
    return dict(Drafts(step, args).given_under(PLAN))


@pytest.mark.parametrize("lay", [by_constraint, by_verb])
def test_what_nothing_else_reads_lies_so_where_it_is_made(lay: Any) -> None:
    def step(x: Any) -> Any:
        return jnp.sum(lay(jnp.sin(x), None, "a") ** 2)

    assert given(step, shape(8, 16)) == {"ops/step/sin.0": ((), ("a",))}


@pytest.mark.parametrize("lay", [by_constraint, by_verb])
def test_what_others_read_besides_lies_so_where_products_read_it(lay: Any) -> None:
    def step(x: Any, w: Any) -> Any:
        made = jnp.sin(x)
        return lay(made, "b") @ w + jnp.sum(made)

    assert given(step, shape(8, 16), shape(16, 4)) == {"ops/step/dot_general.0.in0": (("b",), ())}


def test_arguments_open_dims_and_padded_ones_are_left_to_the_program() -> None:
    def step(x: Any) -> Any:
        open_one = by_constraint(jnp.sin(x), "a", jax.P.UNCONSTRAINED)
        return by_constraint(x, "a"), open_one * 2, by_constraint(jnp.cos(x)[:3], "b") * 2

    assert given(step, shape(8, 16)) == {}


def test_a_value_that_is_given_two_layouts_is_left_to_the_program() -> None:
    def step(x: Any, w: Any) -> Any:
        made = jnp.sin(x)
        return by_constraint(made, "a") @ w, by_constraint(by_constraint(jnp.cos(x), "a"), "b") * 2

    found = given(step, shape(8, 16), shape(16, 4))
    assert found == {"ops/step/sin.0": (("a",), ())}


@pytest.mark.parametrize("lay", [by_constraint, by_verb])
def test_a_search_finds_what_is_quick_with_them(lay: Any) -> None:
    """Had it ignored them, all would be whole: that takes twice as long."""

    def loss(params: Any, x: Any) -> jax.Array:
        hidden = lay(jnp.tanh(x @ params["wi"]), None, "a")
        return jnp.mean((lay(hidden @ params["wo"], "b") - x) ** 2)

    step, args = trained(loss, {"wi": shape(256, 1024), "wo": shape(1024, 256)}, shape(2048, 256))
    found = search(step, args, topology="v5e:2x4", mesh={"a": 4, "b": 2}, time_limit_s=60)
    assert found.plan is not None
    assert found.gap < 0.05
    by_hand = mw.loads(
        "meshwright: 1\ntopology: v5e:2x4\nmesh: {a: 4, b: 2}\ntensors:\n"
        "  params/wi: M H@a\n  params/wo: H@a M\n  '**': replicate\n"
    )
    quick = mw.estimate(by_hand, step, args).step_time_s
    assert found.bound_s <= found.step_time_s <= quick
