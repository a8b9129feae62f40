"""What a step computes once, or twice, of one value, and reads along other loops: priced and written as it has it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from in_process import search
from small_steps import shape, trained


def squared(x: Any) -> Any:
    return jnp.tanh(x) @ jnp.tanh(x).T


def squared_by_parts(x: Any) -> Any:
    return jax.nn.gelu(x) @ jax.nn.gelu(x).T


def squared_once(x: Any) -> Any:
    made = jnp.tanh(x)
    return made @ made.T


def residual(w: Any, x: Any) -> Any:
    made = x + x
    return jnp.mean((made @ w + made).astype(jnp.float32) ** 2)


@pytest.mark.parametrize("step", [squared, squared_by_parts, squared_once])
def test_a_plan_takes_what_its_solution_does_where_both_operands_are_computed_of_one_value(
    step: Callable[..., Any],
) -> None:
    found = search(step, (shape(1024, 1024),), topology="v3:2x2", mesh={"a": 2, "b": 4}, time_limit_s=60)
    assert found.step_time_s == pytest.approx(found.candidates[0].objective_s, rel=0.01)
    assert found.bound_s is not None
    assert found.bound_s <= found.step_time_s


def test_what_a_step_computes_twice_lies_at_each_place_as_its_reader_has_it() -> None:
    """Each device computes the rows and the columns that it multiplies: the compiler counts 12.7 us, of what is brought
    from one layout into the other 34 us.
    """
    by_hand = mw.loads(
        "meshwright: 1\ntopology: v3:2x2\nmesh: {a: 2, b: 4}\ntensors:\n  x: replicate\n  out: _@a _@b\n"
        "  ops/squared/tanh.0.in0: _@a _\n  ops/squared/tanh.1.in0: _@b _\n"
    )
    args = (shape(1024, 1024),)
    found = search(squared, args, topology="v3:2x2", mesh={"a": 2, "b": 4}, time_limit_s=60)
    assert found.step_time_s is not None
    assert found.step_time_s <= mw.estimate(by_hand, squared, args).step_time_s * 1.001
    assert not mw.estimate(by_hand, squared, args).collectives


def test_what_a_step_computes_once_is_priced_so_though_it_is_read_in_two_layouts() -> None:
    """Computed whole for a product, it is no part of what comes after that: a kernel of its own makes it."""
    square = shape(2048, 2048, dtype=jnp.bfloat16)
    found = search(*trained(residual, square, square), topology="v5e:2x4", mesh={"a": 4, "b": 2}, time_limit_s=30)
    assert found.step_time_s == pytest.approx(found.candidates[0].objective_s, rel=0.01)


def attended(params: Any, x: Any) -> Any:
    """Attention whose queries, keys and values are made by one product, and cut out of what it makes."""
    together = (x @ params["qkv"]).reshape(*x.shape[:2], 3, 4, 128)
    q, k, v = (together[:, :, place] for place in range(3))
    probabilities = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k) * 0.1)
    return x + jnp.einsum("bhts,bshk->bthk", probabilities, v).reshape(x.shape) @ params["o"]


def test_keys_that_are_cut_out_of_what_queries_are_lie_otherwise_and_are_sent_cut() -> None:
    """Each device has the queries of its positions and gathers the keys of all, and nothing else of what one product
    made: what is proven of the step is no more than that takes.
    """
    args = ({"qkv": shape(512, 1536), "o": shape(512, 512)}, shape(2, 1024, 512))
    by_hand = mw.loads(
        "meshwright: 1\ntopology: v3:2x2\nmesh: {a: 2, b: 4}\ntensors:\n  params/**: replicate\n  x: _@a _@b _\n"
        "  out: _@a _@b _\n"
    )
    found = search(attended, args, topology="v3:2x2", mesh={"a": 2, "b": 4}, time_limit_s=60)
    took = mw.estimate(by_hand, attended, args)
    assert found.bound_s is not None
    assert found.step_time_s is not None
    assert found.bound_s <= found.step_time_s <= took.step_time_s * 1.001
    assert found.gap < 0.01
    assert found.step_time_s == pytest.approx(found.candidates[0].objective_s, rel=0.01)
