"""The router's product and its softmax, in float32 whatever the model computes in (Switch, section 2.4)."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ....annotate import tag


def logits_of(wg: jax.Array, inputs: jax.Array) -> jax.Array:
    """[G, S, E] float32 from ``inputs`` [G, S, M] and ``wg`` [M, E]."""
    wide = inputs.astype(jnp.float32)
    return jnp.einsum("GSM,ME->GSE", wide, wg, precision=jax.lax.Precision.HIGHEST)


def probabilities(logits: jax.Array) -> jax.Array:
    """The softmax over experts, which plans name ``acts/moe/gates``: [G, S, E] float32."""
    return tag(jax.nn.softmax(logits, axis=-1), "moe/gates")
