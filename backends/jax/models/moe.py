"""The position-wise mixture-of-experts layer as einsums (GShard section 3.1, Algorithm 2).

Dims: G groups of S tokens, E experts with C slots for each group, model dim M, expert hidden dim H.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..annotate import propagation_barrier, tag
from .gates import Gating, top2_gate
from .parameters import Params


class MoeReport(NamedTuple):
    """What an MoE layer says of itself, float32 scalars."""

    aux: jax.Array
    """The auxiliary loss, mean over groups."""
    dropped: jax.Array
    """Share of token choices (two a token) that no expert took, for want of a slot or by random routing."""
    overflowed: jax.Array
    """Share of tokens that no expert took: they pass by the residual connection."""
    load: jax.Array
    """Choices that fell on the busiest expert, over the mean of all experts."""


def moe_layer(
    params: Params, x: jax.Array, valid: jax.Array, *, groups: int, capacity: int, key: jax.Array | None
) -> tuple[jax.Array, MoeReport]:
    """Sends each token of ``x`` [B, T, M] to at most two experts and returns what they say, [B, T, M].

    ``valid`` [B, T] bool marks tokens that are not padding. Random routing draws from ``key``; without one no second
    choice is dropped at random. A token that no expert takes gets zero: the residual connection carries it.
    """
    B, T, M = x.shape
    inputs = tag(x.reshape(groups, -1, M), "moe/inputs")
    uniform = None if key is None else jax.random.uniform(key, inputs.shape[:2])
    gating = gate(params["wg"], inputs, valid.reshape(groups, -1), capacity=capacity, uniform=uniform)
    outputs = experts(params, inputs, gating)
    return outputs.reshape(B, T, M), _report(gating)


def gate(wg: jax.Array, inputs: jax.Array, valid: jax.Array, *, capacity: int, uniform: jax.Array | None) -> Gating:
    """Top2Gating of Algorithm 2: gates from the inputs [G, S, M], always in float32."""
    logits = jnp.einsum("GSM,ME->GSE", inputs.astype(jnp.float32), wg, precision=jax.lax.Precision.HIGHEST)
    gates = tag(jax.nn.softmax(logits, axis=-1), "moe/gates")
    gating = top2_gate(gates, capacity, uniform=uniform, valid=valid)
    return gating._replace(
        combine_weights=tag(gating.combine_weights, "moe/combine_weights"),
        dispatch_mask=tag(gating.dispatch_mask, "moe/dispatch_mask"),
    )


def experts(params: Params, inputs: jax.Array, gating: Gating) -> jax.Array:
    """Dispatch, the experts' feed-forward, combine: lines 3 to 7 of Algorithm 2. [G, S, M]."""
    wi, wo = params["wi"].astype(inputs.dtype), params["wo"].astype(inputs.dtype)
    dispatched = tag(dispatch(gating.dispatch_mask, inputs), "moe/dispatched")
    hidden = tag(jax.nn.relu(jnp.einsum("EGCM,EMH->EGCH", dispatched, wi)), "moe/hidden")
    expert_outputs = tag(jnp.einsum("EGCH,EHM->EGCM", hidden, wo), "moe/expert_outputs")
    return tag(combine(gating.combine_weights, expert_outputs), "moe/combined")


def dispatch(mask: jax.Array, inputs: jax.Array) -> jax.Array:
    """GSEC, GSM -> EGCM: each token into the slots that it was given.

    Computed where the tokens are: the experts' layout does not spread back into the product, so that what moves is its
    result, in an all-to-all (section 3.3.2, "resharding"). E and C are one dim X inside, for C is too small a dim.
    """
    G, S, E, C = mask.shape
    sent = jnp.einsum("GSX,GSM->GXM", mask.reshape(G, S, E * C).astype(inputs.dtype), inputs)
    by_expert = sent.reshape(G, E, C, -1).transpose(1, 0, 2, 3)
    return propagation_barrier(by_expert, allowed="forward")


def combine(weights: jax.Array, expert_outputs: jax.Array) -> jax.Array:
    """GSEC, EGCM -> GSM: the weighted sum of what the experts say of each token, computed where the tokens go."""
    G, S, E, C = weights.shape
    returned = propagation_barrier(expert_outputs, allowed="backward").transpose(1, 0, 2, 3).reshape(G, E * C, -1)
    return jnp.einsum("GSX,GXM->GSM", weights.reshape(G, S, E * C).astype(expert_outputs.dtype), returned)


def _report(gating: Gating) -> MoeReport:
    statistics = gating.statistics
    load = statistics.load.sum(axis=0).astype(jnp.float32)
    return MoeReport(
        aux=gating.aux_loss.mean(),
        dropped=_share(statistics.first_dropped + statistics.second_dropped, min(2, load.shape[0]) * statistics.tokens),
        overflowed=_share(statistics.overflowed, statistics.tokens),
        load=load.max() / jnp.maximum(load.mean(), 1 / load.shape[0]),
    )


def _share(part: jax.Array, whole: jax.Array) -> jax.Array:
    return part.sum() / jnp.maximum(whole.sum(), 1).astype(jnp.float32)
