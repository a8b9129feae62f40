"""The MoE layer is Algorithm 2: dispatch, experts, combine, and what overflows passes by."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from meshwright.backends.jax.models.moe import Capacity, MoeSettings, moe_layer
from meshwright.backends.jax.models.moe.dispatch.einsum import combine_weights
from meshwright.backends.jax.models.moe.gates.top_k import TopKGate

B, T, M, H, E = 2, 8, 6, 10, 4


def weights(seed: int = 0, *, favourite: int | None = None) -> dict[str, jax.Array]:
    keys = jax.random.split(jax.random.key(seed), 3)
    wg = jax.random.normal(keys[0], (M, E))
    if favourite is not None:
        wg = jnp.zeros((M, E)).at[:, favourite].set(5.0)
    return {"wg": wg, "wi": jax.random.normal(keys[1], (E, M, H)), "wo": jax.random.normal(keys[2], (E, H, M))}


def tokens(seed: int = 1) -> jax.Array:
    return jax.random.normal(jax.random.key(seed), (B, T, M))


def run(params: dict[str, jax.Array], x: jax.Array, *, groups: int = 2, capacity: int = 4, valid=None, key=None):
    valid = jnp.ones(x.shape[:2], bool) if valid is None else valid
    return moe_layer(
        params, x, valid, MoeSettings(experts=E, groups=groups, capacity=Capacity(slots=capacity)), key=key
    )


def test_equals_a_loop_over_tokens_and_experts() -> None:
    params, x = weights(), tokens()
    grouped = x.reshape(2, T, M)
    routing = TopKGate()(params, grouped, jnp.ones((2, T), bool), capacity=3, key=None)
    combine = np.asarray(combine_weights(routing, E, 3))
    expected = np.zeros((2, T, M), np.float32)
    for g, s, e, c in np.argwhere(combine > 0):
        hidden = np.maximum(np.asarray(grouped[g, s] @ params["wi"][e]), 0)
        expected[g, s] += combine[g, s, e, c] * (hidden @ np.asarray(params["wo"][e]))
    actual, _ = run(params, x, capacity=3)
    np.testing.assert_allclose(actual.reshape(2, T, M), expected, rtol=2e-5, atol=2e-5)


def test_tokens_that_no_expert_takes_get_zero() -> None:
    x = jnp.abs(tokens())  # positive tokens all prefer expert 2 and, by the tie rule, expert 0 second
    y, report = run(weights(favourite=2), x, capacity=1)
    first_of_each_group = jnp.zeros((B, T), bool).at[:, 0].set(True)
    assert not y[~first_of_each_group].any()
    assert y[first_of_each_group].any()
    assert float(report.dropped) == float(report.overflowed) == pytest.approx(1 - 1 / T)
    assert float(report.load) == pytest.approx(E / 2)


def test_padding_neither_matters_nor_counts() -> None:
    valid = jnp.arange(T)[None].repeat(B, 0) < 5
    params, x = weights(), tokens()
    y, report = run(params, x, valid=valid)
    y_other, report_other = run(params, jnp.where(valid[..., None], x, 7.0), valid=valid)
    np.testing.assert_array_equal(y, y_other)
    assert not y[~valid].any()
    assert jax.tree.map(float, report) == jax.tree.map(float, report_other)


def test_random_routing_drops_some_second_choices_and_no_first() -> None:
    params, x = weights(), tokens()
    _, all_kept = run(params, x, capacity=T)
    _, routed = run(params, x, capacity=T, key=jax.random.key(3))
    assert float(all_kept.dropped) == 0.0
    assert 0.0 < float(routed.dropped) <= 0.5
    assert float(routed.overflowed) == 0.0


def test_gates_stay_float32_under_bfloat16() -> None:
    routing = TopKGate()(weights(), tokens().astype(jnp.bfloat16), jnp.ones((B, T), bool), capacity=4, key=None)
    assert routing.weight.dtype == jnp.float32
    y, report = run(weights(), tokens().astype(jnp.bfloat16))
    assert y.dtype == jnp.bfloat16
    assert report.losses["balance"].dtype == jnp.float32
