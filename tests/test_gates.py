"""The fast gate does what Algorithm 1 says, token by token."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from meshwright.backends.jax.models.moe.dispatch.einsum import combine_weights
from meshwright.backends.jax.models.moe.gates.top_k import TopKGate
from meshwright.backends.jax.models.moe.routing import Routing
from oracles.algorithm1 import algorithm1


def route(gates: jax.Array, capacity: int, *, uniform: Any = None, valid: Any = None) -> Routing:
    valid = jnp.ones(gates.shape[:2], bool) if valid is None else valid
    return TopKGate().route(gates, capacity, uniform=uniform, valid=valid)


gate = jax.jit(route, static_argnums=1)


def draw(seed: int, G: int, S: int, E: int, *, levels: int, padding: bool) -> dict[str, Any]:
    """Gates on a coarse grid (ties) or a fine one, uniforms on a grid that 2·g2 can hit exactly."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(1, levels + 1, (G, S, E)).astype(np.float32)
    gates = raw / raw.sum(-1, keepdims=True, dtype=np.float32)
    uniform = (rng.integers(0, 8, (G, S)) / 8).astype(np.float32)
    valid = rng.random((G, S)) < 0.7 if padding else np.ones((G, S), bool)
    return {"gates": gates, "uniform": uniform, "valid": valid}


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from([(1, 1, 1), (1, 1, 4), (2, 8, 1), (2, 3, 8), (3, 16, 4), (1, 24, 2), (2, 12, 5)]),
    capacity=st.sampled_from([1, 2, 3, 48]),
    levels=st.sampled_from([1, 2, 3, 1000]),
    padding=st.booleans(),
)
@example(seed=0, shape=(2, 12, 5), capacity=1, levels=1, padding=True)
def test_equals_the_loop_by_loop_reference(
    seed: int, shape: tuple[int, int, int], capacity: int, levels: int, padding: bool
) -> None:
    given_ = draw(seed, *shape, levels=levels, padding=padding)
    fast = gate(given_["gates"], capacity, uniform=given_["uniform"], valid=given_["valid"])
    slow = algorithm1(given_["gates"], capacity, given_["uniform"], given_["valid"])
    np.testing.assert_array_equal(combine_weights(fast, shape[2], capacity), slow.combine_weights)
    np.testing.assert_allclose(fast.losses["balance"], slow.aux_loss, rtol=1e-5)
    dropped = np.stack([slow.first_dropped, slow.second_dropped], axis=-1)[:, : min(2, shape[2])]
    np.testing.assert_array_equal(fast.statistics.dropped, dropped)
    for name in ("overflowed", "load"):
        np.testing.assert_array_equal(getattr(fast.statistics, name), getattr(slow, name), err_msg=name)


def one_group(rows: list[list[float]]) -> jax.Array:
    return jnp.array([rows], jnp.float32)


def test_second_choices_queue_behind_all_first_choices() -> None:
    gates = one_group([[0.6, 0.4], [0.4, 0.6]])  # token 0 wants expert 1 second; token 1 wants it first
    routed = gate(gates, 1)
    assert combine_weights(routed, 2, 1)[0, :, :, 0] == pytest.approx(np.array([[0.6, 0.0], [0.0, 0.6]]))


def test_an_overflowed_first_choice_still_counts() -> None:
    gates = one_group([[0.6, 0.4]] * 3)
    routed = gate(gates, 2)
    assert routed.statistics.load.tolist() == [[3, 3]]
    assert routed.statistics.dropped.tolist() == [[1, 1]]
    assert routed.losses["balance"][0] == pytest.approx((3 / 3 * 0.6 + 0.0) / 2)


def test_a_second_choice_dropped_at_random_uses_its_slot_up() -> None:
    gates = one_group([[0.9, 0.1, 0.0], [0.9, 0.1, 0.0]])
    routed = gate(gates, 1, uniform=jnp.array([[0.99, 0.0]]))
    assert not combine_weights(routed, 3, 1)[0, :, 1].any()


def test_the_random_test_is_strict() -> None:
    gates = one_group([[0.75, 0.25]])
    assert gate(gates, 1, uniform=jnp.array([[0.5]])).kept.tolist() == [[[True, False]]]
    assert gate(gates, 1, uniform=jnp.array([[0.499]])).kept.tolist() == [[[True, True]]]


def test_the_surviving_gate_is_not_renormalised() -> None:
    gates = one_group([[0.6, 0.4], [0.6, 0.4]])
    routed = gate(gates, 1, uniform=jnp.ones((1, 2)))
    assert float(combine_weights(routed, 2, 1).sum()) == pytest.approx(0.6)


def test_one_expert_takes_every_token_whole() -> None:
    routed = gate(jnp.ones((1, 4, 1)), 8)
    assert combine_weights(routed, 1, 8).sum(axis=(2, 3)).tolist() == [[1.0] * 4]
    assert routed.statistics.dropped.tolist() == [[0]]


def test_the_auxiliary_loss_is_differentiable_through_mean_gates_only() -> None:
    gates = one_group([[0.6, 0.3, 0.1], [0.5, 0.2, 0.3]])
    gradient = jax.grad(lambda g: route(g, 2).losses["balance"].sum())(gates)
    assert gradient[0] == pytest.approx(np.array([[2 / 2 / 2 / 3, 0, 0]] * 2))


def test_gradients_reach_both_gates() -> None:
    gates = one_group([[0.6, 0.3, 0.1]])
    gradient = jax.grad(lambda g: combine_weights(route(g, 1), 3, 1)[0, 0, 0, 0])(gates)[0, 0]
    assert gradient == pytest.approx(np.array([0.3 / 0.81, -0.6 / 0.81, 0.0]), rel=1e-5)


def test_padding_takes_no_slot() -> None:
    gates = one_group([[0.9, 0.1]] * 2)
    routed = gate(gates, 1, valid=jnp.array([[False, True]]))
    assert not routed.kept[0, 0].any()
    assert (routed.kept[0, 1, 0], routed.slot[0, 1, 0]) == (True, 0)
    assert routed.statistics.tokens.tolist() == [1]


@pytest.mark.parametrize("experts", [1, 3])
def test_gates_that_are_all_zero_give_no_weight_and_no_nan(experts: int) -> None:
    gates = jnp.zeros((1, 2, experts)).at[0, 1, 0].set(1.0)

    def weight(g: jax.Array) -> jax.Array:
        return combine_weights(route(g, 2), experts, 2).sum()

    assert weight(gates) == 1.0
    assert np.isfinite(jax.grad(weight)(gates)).all()
