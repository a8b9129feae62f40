"""Auxiliary losses that keep experts busy alike, not yet weighed.

The systems' balance losses are one formula with two counts and two scales: GShard, Lingvo, Tutel, FastMoE and Switch
count first choices, Flaxformer and MegaBlocks all of them; GShard's is the mean over experts, the others' E² times it
(MegaBlocks' that over K).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp


def balance(gates: jax.Array, counts: jax.Array, valid: jax.Array) -> jax.Array:
    """The mean over experts of (c_e/S)·m_e (GShard, Algorithm 1, line 13), [G]; differentiable through m_e alone.

    ``gates`` [G, S, E] are probabilities and m_e their mean over tokens that are not padding, ``counts`` [G, E] are
    c_e, what overflows included. E² times it is Switch's E·Σ f·P (equation 4), 1 under uniform routing.
    """
    tokens = jnp.maximum(valid.sum(axis=1, dtype=jnp.int32), 1)[:, None].astype(jnp.float32)
    mean_gates = jnp.where(valid[..., None], gates, 0.0).sum(axis=1) / tokens
    return jnp.mean(counts.astype(jnp.float32) / tokens * mean_gates, axis=-1)


def second_place(gates: jax.Array, first: jax.Array, counts: jax.Array, valid: jax.Array) -> jax.Array:
    """Balance of second choices (Mesh TensorFlow's option, weighed there by half the first's weight), [G].

    ``first`` [G, S] are the first choices, whose gates are taken out and the rest made to sum to one; ``counts``
    [G, E] are the second choices.
    """
    others = jnp.where(jnp.arange(gates.shape[-1]) == first[..., None], 0.0, gates)
    return balance(others / (others.sum(axis=-1, keepdims=True) + 1e-9), counts, valid)


def squared_variation(values: jax.Array, *, unbiased: bool = False) -> jax.Array:
    """CV²: the variance of ``values`` over their squared mean (Shazeer et al. 2017, equation 7), a scalar.

    The variance divides by n, as in Tensor2Tensor; by n-1 if ``unbiased``, as in FastMoE's and Tutel's ports, where
    it is zero for a single value.
    """
    count = values.size - (unbiased and values.size > 1)
    variance = jnp.square(values - values.mean()).sum() / count
    return variance / (jnp.square(values.mean()) + 1e-10)


def z_loss(logits: jax.Array, valid: jax.Array) -> jax.Array:
    """The mean of logsumexp(logits)² over tokens that are not padding (Zoph et al. 2022, equation 5), [G]."""
    squares = jnp.where(valid, jnp.square(jax.nn.logsumexp(logits, axis=-1)), 0.0)
    return squares.sum(axis=1) / jnp.maximum(valid.sum(axis=1), 1)
