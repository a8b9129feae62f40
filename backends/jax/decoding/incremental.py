"""The decoder a step at a time: each step's keys and values are kept where they were written (GShard appendix A.1).

Dims: B rows, K tokens of one step (one a hypothesis), S places of the flat sequence, U source places, L turns of the
scan, N heads of D, model dim M, vocabulary V. It gives what ``models.transformer.forward`` gives, where no expert
overflows: in decoding none does, for a row's tokens of a step are a group, with a slot for each of them in every
expert.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..models.blocks import Surroundings, moe_sublayer
from ..models.config import TransformerConfig
from ..models.layers import embed, feed_forward, layer_norm, project_to_vocabulary
from ..models.parameters import Params, sublayers
from ..models.transformer import Batch, encode

_MASKED = -1e9  # as in training: a row without a source has no key at all


class KeysValues(NamedTuple):
    """Keys and values of an attention sublayer of all turns of the scan: [L, B, places, N, D] each."""

    keys: jax.Array
    values: jax.Array


Cache = dict[str, KeysValues]
"""By self-attention sublayer: places are those of the flat sequence, S."""


class Source(NamedTuple):
    """What every step reads of the source."""

    cross: dict[str, KeysValues]
    """By cross-attention sublayer: places are the source's, U."""
    mask: jax.Array
    """[B, U] bool: what is no padding."""


def roomy(config: TransformerConfig, *, rows: int, tokens: int, stack: str = "decoder") -> TransformerConfig:
    """The model on ``rows`` rows of ``tokens`` tokens where nothing is dropped: each row is a group of its own, and
    every expert has a slot for each of its tokens. So what a row says hangs on that row alone.

    Experts that choose their tokens, which those of an encoder may, keep the number that they choose of a group: it is
    no room, but the choice itself. Tokens go where the plan's layouts have them: a few rows do not lie evenly over the
    devices of an exchange by hand.
    """
    alone = dataclasses.replace(config, batch=rows, length=tokens, groups=rows, exchange="annotated")
    if not config.experts or config.moe_choices(stack).gate in TOKENS_ARE_CHOSEN:
        return alone
    return dataclasses.replace(alone, capacity=tokens, capacity_mode="fixed")


TOKENS_ARE_CHOSEN = ("expert_choice", "batchwise")


def read_source(config: TransformerConfig, params: Params, batch: Batch) -> Source:
    """The source, encoded, and what the decoder's cross-attention makes of it. One text a row (segment 1)."""
    rows, length = batch["source"].shape
    encoded, _ = encode(roomy(config, rows=rows, tokens=length, stack="encoder"), params, batch, None)
    cross = {
        name: jax.vmap(lambda weights: _keys_values(weights, encoded))(_weights(params["decoder"][name]))
        for name, kind in sublayers("decoder", config)
        if kind == "cross_attention"
    }
    return Source(cross=cross, mask=batch["source_segments"] > 0)


def empty_cache(config: TransformerConfig, *, rows: int, places: int) -> Cache:
    """Keys and values of no token yet."""
    shape = (config.blocks, rows, places, config.heads, config.head_dim)
    empty = KeysValues(jnp.zeros(shape, config.dtype), jnp.zeros(shape, config.dtype))
    return {name: empty for name, kind in sublayers("decoder", config) if kind == "attention"}


def decode_step(
    config: TransformerConfig,
    params: Params,
    source: Source,
    tokens: jax.Array,
    index: jax.Array,
    visible: jax.Array,
    cache: Cache,
) -> tuple[jax.Array, Cache]:
    """Logits [B, K, V] float32 of what follows ``tokens`` [B, K], the tokens of step ``index``; the cache with them.

    Token j attends to itself and to the places ``visible[:, j]`` ([B, K, S] bool) of the flat sequence.
    """
    x = embed(params["embedding"]["target"], tokens, jnp.full_like(tokens, index), config.dtype)

    def block(x: jax.Array, turn: tuple[Params, Cache, dict[str, KeysValues]]) -> tuple[jax.Array, Cache]:
        return _block(config, *turn, source.mask, visible, x)

    x, written = jax.lax.scan(block, x, (params["decoder"], cache, source.cross))
    start = index * tokens.shape[1]
    cache = jax.tree.map(lambda kept, new: jax.lax.dynamic_update_slice_in_dim(kept, new, start, 2), cache, written)
    decoded = layer_norm(params["norm"]["decoder"], x)
    return project_to_vocabulary(params["embedding"]["target"], decoded), cache


def _block(
    config: TransformerConfig,
    params: Params,
    cache: Cache,
    cross: dict[str, KeysValues],
    source_mask: jax.Array,
    visible: jax.Array,
    x: jax.Array,
) -> tuple[jax.Array, Cache]:
    """One turn of the scan, and the keys and values of this step's tokens, [B, K, N, D] a sublayer."""
    written: Cache = {}
    B, K, _ = x.shape
    for name, kind in sublayers("decoder", config):
        normed = layer_norm(params[name]["norm"], x)
        if kind == "moe":
            around = Surroundings(
                config=roomy(config, rows=B, tokens=K), stack="decoder", segments=jnp.ones((B, K), jnp.int32)
            )
            out, _ = moe_sublayer(around, params[name], normed, None)
        elif kind == "ffn":
            out = feed_forward(params[name], normed)
        elif kind == "cross_attention":
            mask = jnp.broadcast_to(source_mask[:, None], (B, K, source_mask.shape[1]))
            out = _attend(params[name], normed, [(cross[name], mask)])
        else:
            written[name] = _keys_values(params[name], normed)
            itself = jnp.broadcast_to(jnp.eye(K, dtype=bool), (B, K, K))
            out = _attend(params[name], normed, [(cache[name], visible), (written[name], itself)])
        x = x + out
    return x, written


def _attend(params: Params, x: jax.Array, memories: list[tuple[KeysValues, jax.Array]]) -> jax.Array:
    """Attention of ``x`` [B, K, M] to several memories as to one, each with its mask [B, K, places]."""
    query = jnp.einsum("BKM,MND->BKND", x, params["wq"].astype(x.dtype))
    query = query * query.shape[-1] ** -0.5
    scores = [_scores(query, memory.keys, mask) for memory, mask in memories]
    probabilities = jax.nn.softmax(jnp.concatenate(scores, axis=-1), axis=-1).astype(x.dtype)
    ends = [sum(part.shape[-1] for part in scores[: i + 1]) for i in range(len(scores) - 1)]
    parts = zip(jnp.split(probabilities, ends, axis=-1), memories, strict=True)
    context = sum(jnp.einsum("BNKS,BSND->BKND", part, memory.values) for part, (memory, _) in parts)
    return jnp.einsum("BKND,NDM->BKM", context, params["wo"].astype(x.dtype))


def _scores(query: jax.Array, keys: jax.Array, mask: jax.Array) -> jax.Array:
    scores = jnp.einsum("BKND,BSND->BNKS", query, keys, preferred_element_type=jnp.float32)
    return jnp.where(mask[:, None], scores, _MASKED)


def _weights(params: Params) -> Params:
    return {name: params[name] for name in ("wk", "wv")}


def _keys_values(params: Params, x: jax.Array) -> KeysValues:
    """[B, places, N, D] each, from ``x`` [B, places, M]."""
    made = (jnp.einsum("BUM,MND->BUND", x, params[name].astype(x.dtype)) for name in ("wk", "wv"))
    return KeysValues(*made)
