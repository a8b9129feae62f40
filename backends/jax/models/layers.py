"""The Transformer's layers: normalisation, attention, feed-forward, embeddings.

Dims: B rows of T tokens (U where a row stands as keys), model dim M, N heads of D, hidden dim H, vocabulary V.
Weights are float32; activations have the dtype of what comes in; softmax and norm statistics are float32.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..annotate import tag
from .dropout import dropout
from .parameters import Params

_MASKED = -1e9  # not -inf: a padding query has no key at all and must stay finite


def layer_norm(params: Params, x: jax.Array) -> jax.Array:
    """Layer normalisation over the last dim, statistics in float32."""
    wide = x.astype(jnp.float32)
    centred = wide - wide.mean(axis=-1, keepdims=True)
    variance = jnp.square(centred).mean(axis=-1, keepdims=True)
    normed: jax.Array = centred * jax.lax.rsqrt(variance + 1e-6) * params["scale"] + params["bias"]
    return normed.astype(x.dtype)


def attention(
    params: Params, x: jax.Array, memory: jax.Array, mask: jax.Array, *, rate: float, key: jax.Array | None
) -> jax.Array:
    """Multi-head attention of ``x`` [B, T, M] to ``memory`` [B, U, M] where ``mask`` [B, T, U] is true."""
    query = tag(jnp.einsum("BTM,MND->BTND", x, _like(x, params["wq"])), "attention/query")
    key_ = tag(jnp.einsum("BUM,MND->BUND", memory, _like(x, params["wk"])), "attention/key")
    value = tag(jnp.einsum("BUM,MND->BUND", memory, _like(x, params["wv"])), "attention/value")
    scores = jnp.einsum("BTND,BUND->BNTU", query * query.shape[-1] ** -0.5, key_, preferred_element_type=jnp.float32)
    scores = tag(jnp.where(mask[:, None], scores, _MASKED), "attention/scores")
    probabilities = dropout(jax.nn.softmax(scores, axis=-1).astype(x.dtype), rate, key)
    context = tag(jnp.einsum("BNTU,BUND->BTND", probabilities, value), "attention/context")
    return tag(jnp.einsum("BTND,NDM->BTM", context, _like(x, params["wo"])), "attention/out")


def segment_mask(queries: jax.Array, keys: jax.Array, *, causal: bool = False) -> jax.Array:
    """[B, T, U] bool: who attends to whom in packed rows: the same segment, not padding (0), not later if causal."""
    mask = (queries[:, :, None] == keys[:, None, :]) & (keys[:, None, :] > 0)
    if not causal:
        return mask
    row = jnp.arange(queries.shape[1])
    return mask & (row[:, None] >= row[None, :])


def feed_forward(params: Params, x: jax.Array) -> jax.Array:
    """wo·ReLU(wi·x), without biases (GShard equation 2)."""
    hidden = tag(jax.nn.relu(jnp.einsum("BTM,MH->BTH", x, _like(x, params["wi"]))), "ffn/hidden")
    return tag(jnp.einsum("BTH,HM->BTM", hidden, _like(x, params["wo"])), "ffn/out")


def embed(table: jax.Array, tokens: jax.Array, positions: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """[B, T, M]: embeddings times sqrt(M), plus sinusoids of each token's position in its own segment."""
    M = table.shape[-1]
    embedded: jax.Array = table[tokens] * M**0.5 + sinusoids(positions, M)
    return embedded.astype(dtype)


def sinusoids(positions: jax.Array, M: int) -> jax.Array:
    """[B, T, M] float32: sines and cosines of geometrically spaced frequencies (Vaswani et al. 2017, section 3.5)."""
    half = (M + 1) // 2
    frequencies = jnp.exp(-jnp.log(10000.0) / half * jnp.arange(half, dtype=jnp.float32))
    angles = positions[..., None].astype(jnp.float32) * frequencies
    return jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)[..., :M]


def project_to_vocabulary(table: jax.Array, x: jax.Array) -> jax.Array:
    """[B, T, V] float32: logits from the target embedding, which the softmax shares (Vaswani et al. 2017, 3.4)."""
    logits = jnp.einsum("BTM,VM->BTV", x, _like(x, table), preferred_element_type=jnp.float32)
    return tag(logits, "logits")


def cross_entropy(logits: jax.Array, target: jax.Array) -> jax.Array:
    """[B, T] float32: -log softmax(logits)[target], as a masked sum so that a split V needs no gather."""
    chosen = jnp.arange(logits.shape[-1]) == target[..., None]
    return jax.nn.logsumexp(logits, axis=-1) - jnp.where(chosen, logits, 0).sum(axis=-1)


def _like(x: jax.Array, weight: jax.Array) -> jax.Array:
    return weight.astype(x.dtype)
