"""Adafactor treats a stack as separate variables, each exactly as Optax treats one."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from meshwright.backends.jax.models.optimizer import Adafactor, second_moment_decay
from meshwright.backends.jax.models.parameters import Parameter

L, E, M, H = 2, 6, 4, 5
TABLE = {
    "moe/wi": Parameter(dims="L E M H", shape=(L, E, M, H), stacked=2),
    "ffn/wi": Parameter(dims="L M H", shape=(L, M, H), stacked=1),
    "norm/scale": Parameter(dims="M", shape=(M,)),
}
OPTIMIZER = Adafactor(table=TABLE, learning_rate=1.0, warmup_steps=4, factor_from=4)


def tree(seed: int) -> dict[str, dict[str, jax.Array]]:
    keys = jax.random.split(jax.random.key(seed), 3)
    normal = jax.random.normal
    moe = normal(keys[0], (L, E, M, H)) * jnp.arange(1, E + 1)[:, None, None]  # experts of unlike size
    return {
        "moe": {"wi": moe},
        "ffn": {"wi": normal(keys[1], (L, M, H))},
        "norm": {"scale": normal(keys[2], (M,))},
    }


def optax_adafactor() -> optax.GradientTransformation:
    """Optax's own Adafactor on a single variable, with A.2's decay and the learning rate's schedule."""
    return optax.chain(
        optax.scale_by_factored_rms(min_dim_size_to_factor=4, decay_rate_fn=second_moment_decay),
        optax.clip_by_block_rms(1.0),
        optax.scale_by_learning_rate(lambda t: 1.0 / jnp.sqrt(jnp.maximum(t + 1.0, 4.0))),
        optax.scale_by_param_block_rms(),
    )


def optax_steps(value: jax.Array, gradients: list[jax.Array]) -> jax.Array:
    reference = optax_adafactor()
    state = reference.init(value)
    for gradient in gradients:
        change, state = reference.update(gradient, state, value)
        value = optax.apply_updates(value, change)
    return value


def test_each_layer_and_expert_steps_as_if_it_stood_alone() -> None:
    params, gradients = tree(0), [tree(seed) for seed in range(1, 7)]
    state, stepped = OPTIMIZER.init(params), params
    update = jax.jit(OPTIMIZER.update)
    for gradient in gradients:
        stepped, state = update(gradient, state, stepped)
    for index in np.ndindex(L, E):
        alone = optax_steps(params["moe"]["wi"][index], [g["moe"]["wi"][index] for g in gradients])
        np.testing.assert_allclose(stepped["moe"]["wi"][index], alone, rtol=2e-5, atol=1e-6)
    alone = optax_steps(params["norm"]["scale"], [g["norm"]["scale"] for g in gradients])
    np.testing.assert_allclose(stepped["norm"]["scale"], alone, rtol=2e-5, atol=1e-6)


def test_the_state_mirrors_the_parameters_and_holds_only_what_it_needs() -> None:
    state = OPTIMIZER.init(tree(0))
    shapes = jax.tree.map(lambda x: x.shape, state)
    assert shapes == {
        "count": (),
        "v_row": {"moe": {"wi": (L, E, M)}, "ffn": {"wi": (L, M)}},
        "v_col": {"moe": {"wi": (L, E, H)}, "ffn": {"wi": (L, H)}},
        "v": {"norm": {"scale": (M,)}},
    }


def test_the_learning_rate_is_constant_and_then_decays_with_the_root() -> None:
    optimizer = Adafactor(table={})
    rates = [float(optimizer.learning_rate_at(jnp.int32(t - 1))) for t in (1, 10_000, 40_000)]
    assert rates == pytest.approx([0.01, 0.01, 0.005], rel=1e-5)


def test_second_moments_decay_by_the_schedule_up_to_its_cap() -> None:
    decays = [float(second_moment_decay(t - 1, 0.8)) for t in (1, 2, 100_000)]
    assert decays == pytest.approx([0.0, 1 - 2**-0.8, 0.99], rel=1e-5)
