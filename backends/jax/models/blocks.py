"""A stack of layers as one scan over identical blocks, so that compile time does not grow with depth.

A block is a dense layer followed by an MoE layer (GShard: every other feed-forward layer is an MoE layer), or one
dense layer where there are no experts. Each sublayer is x + dropout(sublayer(norm(x))).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import jax

from ..annotate import remat, tag
from .config import TransformerConfig
from .dropout import dropout
from .gradients import resolve
from .layers import attention, feed_forward, layer_norm, segment_mask
from .moe import MoeReport, moe_layer, silent_report
from .parameters import Params, sublayers


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What the blocks of one stack share: the segments of its rows [B, T], and what the decoder attends to besides."""

    config: TransformerConfig
    stack: str
    """``encoder`` or ``decoder``."""
    segments: jax.Array
    memory: jax.Array | None = None
    """[B, U, M]: the encoder's output."""
    memory_segments: jax.Array | None = None
    uniform: jax.Array | None = None
    """A bool: whether tokens go round the experts in turn."""


def run_stack(around: Surroundings, params: Params, x: jax.Array, key: jax.Array | None) -> tuple[jax.Array, MoeReport]:
    """All blocks over ``x`` [B, T, M]; ``params`` have a leading dim L. Each report has one entry a block, [L]."""
    keys = None if key is None else jax.random.split(key, around.config.blocks)
    block = remat(functools.partial(run_block, around), prevent_cse=False)
    return jax.lax.scan(lambda x, each: block(each[0], x, each[1]), x, (params, keys))


def run_block(around: Surroundings, params: Params, x: jax.Array, key: jax.Array | None) -> tuple[jax.Array, MoeReport]:
    """One block, with the parameters of one turn of the scan. A block without an MoE layer reports perfect balance."""
    x, params = tag(x, "block/inputs"), resolve(params)
    named = sublayers(around.stack, around.config)
    report = silent_report()
    for (name, kind), sublayer_key in zip(named, split_key(key, len(named)), strict=True):
        inner, residual = split_key(sublayer_key, 2)
        normed = layer_norm(params[name]["norm"], x)
        if kind == "moe":
            out, report = moe_sublayer(around, params[name], normed, inner)
        elif kind == "ffn":
            out = feed_forward(params[name], normed)
        else:
            out = _attend(around, kind, params[name], normed, inner)
        x = x + dropout(out, around.config.dropout, residual)
    return x, report


def split_key(key: jax.Array | None, count: int) -> Iterator[jax.Array | None]:
    """``count`` keys, or as many times None."""
    return iter([None] * count if key is None else jax.random.split(key, count))


def _attend(around: Surroundings, kind: str, params: Params, x: jax.Array, key: jax.Array | None) -> jax.Array:
    rate = around.config.dropout
    if kind == "cross_attention" and around.memory is not None and around.memory_segments is not None:
        mask = segment_mask(around.segments, around.memory_segments)
        return attention(params, x, around.memory, mask, rate=rate, key=key)
    mask = segment_mask(around.segments, around.segments, causal=around.stack == "decoder")
    return attention(params, x, x, mask, rate=rate, key=key)


def moe_sublayer(
    around: Surroundings, params: Params, x: jax.Array, key: jax.Array | None
) -> tuple[jax.Array, MoeReport]:
    """The MoE layer of a block on ``x`` [B, T, M], and its report."""
    settings = around.config.moe(around.stack)
    if around.uniform is not None:
        settings = settings.in_turn(around.uniform)
    return moe_layer(params, x, around.segments > 0, settings, key=key)
