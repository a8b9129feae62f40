"""The encoder-decoder MoE Transformer (GShard section 2.1, Figure 3): its forward pass and its loss.

Layers are pre-norm, with a last norm after each stack, as in GShard's own code (Lingvo); the figure does not tell.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from ..annotate import tag
from .blocks import Surroundings, run_stack, split_key
from .config import BOS, TransformerConfig
from .dropout import dropout
from .gradients import resolve
from .layers import cross_entropy, embed, layer_norm, project_to_vocabulary
from .moe import MoeReport, joined
from .parameters import Params

Batch = dict[str, jax.Array]
"""``source``, ``source_segments``, ``source_positions``, the same of ``target``: int32 [B, T]; segment 0 is padding."""
Metrics = dict[str, jax.Array]
"""Float32 scalars by name."""


def loss(
    config: TransformerConfig,
    params: Params,
    batch: Batch,
    key: jax.Array | None = None,
    *,
    uniform: jax.Array | None = None,
) -> tuple[jax.Array, Metrics]:
    """Mean cross-entropy of the target's tokens plus the mean auxiliary losses by their weights, and metrics.

    Dropout and random routing draw from ``key``; without one there is neither. Where ``uniform``, a bool, is true,
    tokens go round the experts in turn.
    """
    logits, reports = forward(config, params, batch, key, uniform)
    valid = batch["target_segments"] > 0
    tokens = valid.sum(dtype=jnp.float32)
    nll = jnp.where(valid, cross_entropy(logits, batch["target"]), 0).sum() / jnp.maximum(tokens, 1)
    losses = {name: loss.mean() for name, loss in reports.losses.items()}
    total, weights = nll, config.loss_weights(config.experts)
    for name, auxiliary in losses.items():
        total = total + weights[name] * auxiliary
    metrics = {
        "loss": nll,
        "aux": losses.get("balance", jnp.float32(0)),
        "total": total,
        "tokens": tokens,
        "dropped": reports.dropped.mean(),
        "overflowed": reports.overflowed.mean(),
        "expert_load": reports.load.max(),
        **{f"aux_{name}": loss for name, loss in losses.items() if name != "balance"},
    }
    if config.exchange_bound is not None:
        metrics["refused"] = reports.refused.mean()
    return total, metrics


def forward(
    config: TransformerConfig,
    params: Params,
    batch: Batch,
    key: jax.Array | None = None,
    uniform: jax.Array | None = None,
) -> tuple[jax.Array, MoeReport]:
    """Logits [B, T, V] float32 of each target token given those before it, and reports of the MoE layers [2L]."""
    params = {**params, "embedding": resolve(params["embedding"]), "norm": resolve(params["norm"])}
    encoder_key, decoder_key = split_key(key, 2)
    encoded, encoder_reports = encode(config, params, batch, encoder_key, uniform)
    decoded, decoder_reports = decode(config, params, batch, encoded, decoder_key, uniform)
    reports = joined(encoder_reports, decoder_reports)
    return project_to_vocabulary(params["embedding"]["target"], decoded), reports


def encode(
    config: TransformerConfig,
    params: Params,
    batch: Batch,
    key: jax.Array | None,
    uniform: jax.Array | None = None,
) -> tuple[jax.Array, MoeReport]:
    """The source, encoded: [B, T, M], and a report of each MoE layer [L]."""
    around = Surroundings(config=config, stack="encoder", segments=batch["source_segments"], uniform=uniform)
    table = params["embedding"]["source"]
    return _run(around, params, table, batch["source"], batch["source_positions"], key)


def decode(
    config: TransformerConfig,
    params: Params,
    batch: Batch,
    encoded: jax.Array,
    key: jax.Array | None,
    uniform: jax.Array | None = None,
) -> tuple[jax.Array, MoeReport]:
    """What stands before the vocabulary projection: [B, T, M], and a report of each MoE layer [L]."""
    around = Surroundings(
        config=config,
        stack="decoder",
        segments=batch["target_segments"],
        memory=encoded,
        memory_segments=batch["source_segments"],
        uniform=uniform,
    )
    tokens = shift_right(batch["target"], batch["target_segments"])
    return _run(around, params, params["embedding"]["target"], tokens, batch["target_positions"], key)


def shift_right(target: jax.Array, segments: jax.Array) -> jax.Array:
    """The decoder's inputs: each token's predecessor in its segment, ``BOS`` at the segment's start."""
    before, segment_before = (jnp.pad(x, ((0, 0), (1, 0)))[:, :-1] for x in (target, segments))
    return jnp.where(segments == segment_before, before, BOS)


def _run(
    around: Surroundings,
    params: Params,
    table: jax.Array,
    tokens: jax.Array,
    positions: jax.Array,
    key: jax.Array | None,
) -> tuple[jax.Array, MoeReport]:
    input_key, stack_key = split_key(key, 2)
    embedded = tag(embed(table, tokens, positions, around.config.dtype), f"{around.stack}/embedded")
    inputs = dropout(embedded, around.config.dropout, input_key)
    outputs, reports = run_stack(around, params[around.stack], inputs, stack_key)
    normed = layer_norm(params["norm"][around.stack], outputs)
    return tag(normed, f"{around.stack}/out"), reports
