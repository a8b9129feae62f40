"""GShard's gating function: group-level top-2 gating with auxiliary loss (section 2.2, Algorithm 1).

Dims, named as in the paper: G groups of S tokens, E experts, C slots of an expert's buffer for one group.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp


class GateStatistics(NamedTuple):
    """What a gate did, by group, as whole numbers (int32)."""

    tokens: jax.Array
    """[G]: tokens that are not padding."""
    first_dropped: jax.Array
    """[G]: first choices that found their expert full."""
    second_dropped: jax.Array
    """[G]: second choices that found their expert full, or that random routing dropped."""
    overflowed: jax.Array
    """[G]: tokens that no expert took; they pass by the residual connection."""
    load: jax.Array
    """[G, E]: choices that fell on each expert, taken or not: the counters c_e at the end of Algorithm 1."""


class Gating(NamedTuple):
    """Where every token goes."""

    combine_weights: jax.Array
    """[G, S, E, C] float32: the weight of expert e's output for token s, which sits in slot c of its buffer."""
    dispatch_mask: jax.Array
    """[G, S, E, C] bool: the non-zero combine weights."""
    aux_loss: jax.Array
    """[G] float32: each group's auxiliary loss (line 13)."""
    statistics: GateStatistics


class _Choice(NamedTuple):
    mask: jax.Array
    """[G, S, E] bool: the expert chosen; all false for padding and where there is no such expert."""
    gate: jax.Array
    """[G, S] float32: the normalised gate."""


def top2_gate(
    gates: jax.Array, capacity: int, *, uniform: jax.Array | None = None, valid: jax.Array | None = None
) -> Gating:
    """Algorithm 1 for all groups at once.

    ``gates`` [G, S, E] float32 are softmaxed logits (line 2); ``capacity`` is C, at least 1. ``uniform`` [G, S] in
    [0, 1) are the random numbers of line 17: a second choice is dispatched if 2·g2 exceeds them; without them every
    second choice whose gate is not zero is. ``valid`` [G, S] bool marks tokens that are not padding. The paper has no
    padding: here a padding token takes no slot, counts for nothing, and S becomes the number of valid tokens in the
    auxiliary loss.

    Ties go to the lowest expert. With E = 1 there is no second expert: g1 = 1, g2 = 0. A token whose gates are all
    zero has zero weights.
    """
    gates = gates.astype(jnp.float32)
    valid = jnp.ones(gates.shape[:2], bool) if valid is None else valid
    first, second = _choices(gates, valid)
    first_counts = jnp.cumsum(first.mask, axis=1, dtype=jnp.int32)
    second_counts = first_counts[:, -1:] + jnp.cumsum(second.mask, axis=1, dtype=jnp.int32)
    first_slot, second_slot = _slot(first, first_counts), _slot(second, second_counts)
    second = _route_randomly(second, uniform)
    flat = _place(first, first_slot, capacity) + _place(second, second_slot, capacity)
    statistics = GateStatistics(
        tokens=_count(valid),
        first_dropped=_count(valid) - _count(_taken(first, first_slot, capacity)),
        second_dropped=_count(valid) * (gates.shape[-1] > 1) - _count(_taken(second, second_slot, capacity)),
        overflowed=_count(valid & ~_taken(first, first_slot, capacity) & ~_taken(second, second_slot, capacity)),
        load=second_counts[:, -1],
    )
    aux_loss = _aux_loss(gates, first_counts[:, -1], valid)
    shape = (*gates.shape, capacity)
    return Gating(flat.reshape(shape), (flat > 0).reshape(shape), aux_loss, statistics)


def _choices(gates: jax.Array, valid: jax.Array) -> tuple[_Choice, _Choice]:
    """Lines 5-6 and 15-16: the two best experts of every token, their gates normalised before anything is dropped."""
    experts = gates.shape[-1]
    first = jax.nn.one_hot(jnp.argmax(gates, axis=-1), experts, dtype=bool)
    others = jnp.where(first, -1.0, gates)
    second = jax.nn.one_hot(jnp.argmax(others, axis=-1), experts, dtype=bool) & (experts > 1)
    gate1 = jnp.where(first, gates, 0.0).sum(axis=-1)
    gate2 = jnp.where(second, gates, 0.0).sum(axis=-1)
    both = gate1 + gate2
    total = jnp.where(both > 0, both, 1.0)  # gates of padding may all be zero
    return (
        _Choice(first & valid[..., None], gate1 / total),
        _Choice(second & valid[..., None], gate2 / total),
    )


def _slot(choice: _Choice, counts: jax.Array) -> jax.Array:
    """[G, S] int32: the buffer position of each token in its expert, from 0; it may lie beyond the capacity."""
    return jnp.where(choice.mask, counts, 0).sum(axis=-1) - 1


def _route_randomly(second: _Choice, uniform: jax.Array | None) -> _Choice:
    """Lines 17 and 19. The slot was counted before: a second choice dropped at random still uses it up (line 22)."""
    kept = second.gate > 0 if uniform is None else 2.0 * second.gate > uniform
    return second._replace(mask=second.mask & kept[..., None])


def _place(choice: _Choice, slot: jax.Array, capacity: int) -> jax.Array:
    """[G, S, E·C] float32: the gates at their expert and slot; a choice beyond the capacity has no place.

    Flat, because a small C as the minor dim would be padded to the width of the vector unit.
    """
    experts = choice.mask.shape[-1]
    position = jnp.argmax(choice.mask, axis=-1) * capacity + slot
    taken = _taken(choice, slot, capacity)
    chosen = jax.nn.one_hot(jnp.where(taken, position, -1), experts * capacity, dtype=jnp.float32)
    return choice.gate[..., None] * chosen


def _taken(choice: _Choice, slot: jax.Array, capacity: int) -> jax.Array:
    return choice.mask.any(axis=-1) & (slot < capacity)


def _count(tokens: jax.Array) -> jax.Array:
    return tokens.sum(axis=1, dtype=jnp.int32)


def _aux_loss(gates: jax.Array, first_counts: jax.Array, valid: jax.Array) -> jax.Array:
    """Line 13: the mean over experts of (c_e/S)·m_e; c_e counts first choices, overflow included. [G]."""
    tokens = jnp.maximum(_count(valid), 1)[:, None].astype(jnp.float32)
    mean_gates = jnp.where(valid[..., None], gates, 0.0).sum(axis=1) / tokens
    return jnp.mean(first_counts.astype(jnp.float32) / tokens * mean_gates, axis=-1)
