"""Auxiliary losses that keep experts busy alike, by group: float32 [G], not yet weighed.

The systems' balance losses are one formula with two counts and two scales: GShard, Lingvo, Tutel, FastMoE and Switch
count first choices, Flaxformer and MegaBlocks all of them; GShard's is the mean over experts, the others' E² times it.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def balance(gates: jax.Array, counts: jax.Array, valid: jax.Array) -> jax.Array:
    """The mean over experts of (c_e/S)·m_e (GShard, Algorithm 1, line 13); differentiable through m_e alone.

    ``gates`` [G, S, E] are probabilities and m_e their mean over tokens that are not padding, ``counts`` [G, E] are
    c_e, what overflows included. E² times it is Switch's E·Σ f·P (equation 4), 1 under uniform routing.
    """
    tokens = jnp.maximum(valid.sum(axis=1, dtype=jnp.int32), 1)[:, None].astype(jnp.float32)
    mean_gates = jnp.where(valid[..., None], gates, 0.0).sum(axis=1) / tokens
    return jnp.mean(counts.astype(jnp.float32) / tokens * mean_gates, axis=-1)
