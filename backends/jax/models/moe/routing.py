"""Where tokens go: what every gate returns, and how choices become slots in the experts' buffers.

Dims, named as in the papers: G groups of S tokens, K choices of a token, E experts, C slots of an expert for one group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp

Params = Mapping[str, Any]
Order = Literal["choice", "token", "score"]
Normalise = Literal["before", "after", "never"]


class Statistics(NamedTuple):
    """What a gate did, by group, as whole numbers (int32)."""

    tokens: jax.Array
    """[G]: tokens that are not padding."""
    choices: jax.Array
    """[G]: choices made, K for each of those tokens, or what experts chose."""
    dropped: jax.Array
    """[G, K]: first, second ... choices that found their expert full, or that random routing dropped."""
    overflowed: jax.Array
    """[G]: tokens that no expert took; they pass by the residual connection."""
    first: jax.Array
    """[G, E]: first choices that fell on each expert, taken or not: GShard's c_e after the first pass."""
    load: jax.Array
    """[G, E]: choices that fell on each expert, taken or not: the counters c_e at the end of GShard's Algorithm 1."""


class Routing(NamedTuple):
    """The K choices of every token, and what became of them."""

    expert: jax.Array
    """[G, S, K] int32."""
    weight: jax.Array
    """[G, S, K] float32: what the expert's output is multiplied by, if the choice is kept. Differentiable."""
    slot: jax.Array
    """[G, S, K] int32: the position in the expert's buffer, from 0. No two choices of a group that an expert counted
    share one. It may lie beyond the capacity; -1 where nothing was counted (padding)."""
    kept: jax.Array
    """[G, S, K] bool: whether the expert takes the token: it has a slot below the capacity and a weight above zero."""
    losses: dict[str, jax.Array]
    """Auxiliary losses by name, float32 [G], not yet weighed."""
    statistics: Statistics


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How gates become choices, slots and weights."""

    choices: int
    """K; no more than there are experts are made."""
    order: Order = "choice"
    """Who comes first where slots are few: all first choices, then all second ones (GShard, Switch, Tutel); all
    choices of a token, then the next token's (FastMoE); or as ``choice``, tokens with the larger first gate before
    others (batch-prioritised routing, Riquelme et al. 2021)."""
    normalise: Normalise = "before"
    """Whether a token's K gates are made to sum to one: before any is dropped (GShard), after (Lingvo without its
    legacy behaviour, where what survives weighs one together), or never (Switch)."""
    threshold: float | None = None
    """Random routing: a choice after the first is kept where its gate over this exceeds a uniform number; 0.5 is
    GShard's 2·g2 > u (Algorithm 1, line 17), 0.2 Mesh TensorFlow's."""
    lost_slots: int = 0
    """Slots of every buffer that stay empty: 1 in Switch's pseudo-code (appendix F), whose sum is inclusive."""
    dropped_uses_slot: bool = True
    """Whether a choice that random routing drops still takes its slot (line 22); Lingvo's takes none."""


class _Choice(NamedTuple):
    expert: jax.Array
    """[G, S] int32."""
    mask: jax.Array
    """[G, S, E] bool: the expert, if the choice is counted; all false for padding."""
    gate: jax.Array
    """[G, S] float32."""
    wanted: jax.Array
    """[G, S] bool: whether it is to be sent: neither padding nor dropped at random, and its gate is not zero."""


def assign(
    gates: jax.Array,
    rules: Rules,
    capacity: int,
    *,
    uniform: jax.Array | None = None,
    valid: jax.Array | None = None,
    scores: jax.Array | None = None,
) -> Routing:
    """The routing of ``gates`` [G, S, E] float32, without losses; every expert has ``capacity`` slots, at least 1.

    ``uniform`` [G, S] in [0, 1) are the random numbers of random routing; without them none is dropped at random.
    ``valid`` [G, S] bool marks tokens that are not padding: a padding token takes no slot and counts for nothing.
    ``scores`` [G, S, E] decide which experts are chosen; the gates themselves by default. Ties go to the lowest
    expert. A token whose gates are all zero has zero weights.
    """
    valid = jnp.ones(gates.shape[:2], bool) if valid is None else valid
    choices, first_gates = _choose(gates, rules, uniform, valid, gates if scores is None else scores)
    slots, first, load = count_slots([choice.mask for choice in choices], rules.order, first_gates)
    taken = [choice.wanted & (slot < capacity - rules.lost_slots) for choice, slot in zip(choices, slots, strict=True)]
    weights = [choice.gate for choice in choices]
    if rules.normalise == "after":
        weights = _normalised([jnp.where(t, w, 0.0) for t, w in zip(taken, weights, strict=True)])
    count = _count(valid)
    return Routing(
        expert=jnp.stack([choice.expert for choice in choices], axis=-1),
        weight=jnp.stack(weights, axis=-1),
        slot=jnp.stack(slots, axis=-1),
        kept=jnp.stack(taken, axis=-1),
        losses={},
        statistics=Statistics(
            tokens=count,
            choices=len(choices) * count,
            dropped=jnp.stack([count - _count(t) for t in taken], axis=-1),
            overflowed=_count(valid & ~_any(taken)),
            first=first,
            load=load,
        ),
    )


def _choose(
    gates: jax.Array, rules: Rules, uniform: jax.Array | None, valid: jax.Array, scores: jax.Array
) -> tuple[list[_Choice], jax.Array]:
    """Every token's choices, and the gates of the first ones as they came [G, S]."""
    chosen = best_experts(scores, rules.choices)
    raw = [jnp.where(mask, gates, 0.0).sum(axis=-1) for _, mask in chosen]
    values = _normalised(raw) if rules.normalise == "before" else raw
    first, *others = (
        _Choice(expert, mask & valid[..., None], gate, valid & (gate > 0))
        for (expert, mask), gate in zip(chosen, values, strict=True)
    )
    if rules.threshold is not None and uniform is not None:
        others = [_route_randomly(choice, rules, uniform * rules.threshold) for choice in others]
    return [first, *others], raw[0]


def best_experts(scores: jax.Array, count: int) -> list[tuple[jax.Array, jax.Array]]:
    """The ``count`` best experts of every token, best first: [G, S] int32 and as masks [G, S, E]. Ties: the lowest."""
    experts, found = scores.shape[-1], []
    for _ in range(min(count, experts)):
        best = jnp.argmax(scores, axis=-1).astype(jnp.int32)
        mask = jax.nn.one_hot(best, experts, dtype=bool)
        found.append((best, mask))
        scores = jnp.where(mask, -jnp.inf, scores)
    return found


def count_slots(masks: list[jax.Array], order: Order, first: jax.Array) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    """The buffer position of each choice [G, S], from 0; first and all choices of each expert [G, E]. All int32.

    ``masks`` [G, S, E] bool are the choices that count; what overflows counts on, so no two have the same position.
    ``first`` [G, S] are the first choices' gates, which order ``score`` goes by.
    """
    if order == "token":
        return _token_by_token(masks)
    rank = jnp.argsort(-first, axis=1, stable=True)[..., None] if order == "score" else None
    slots: list[jax.Array] = []
    loads: list[jax.Array] = []
    for mask in masks:
        ranked = mask if rank is None else jnp.take_along_axis(mask, rank, axis=1)
        counts = jnp.cumsum(ranked, axis=1, dtype=jnp.int32)
        counts = loads[-1][:, None] + counts if loads else counts
        slot = jnp.where(ranked, counts, 0).sum(axis=-1) - 1
        slots.append(slot if rank is None else _unranked(slot, rank[..., 0]))
        loads.append(counts[:, -1])
    return slots, loads[0], loads[-1]


def _token_by_token(masks: list[jax.Array]) -> tuple[list[jax.Array], jax.Array, jax.Array]:
    G, S, E = masks[0].shape
    flat = jnp.stack(masks, axis=2).reshape(G, S * len(masks), E)
    counts = jnp.cumsum(flat, axis=1, dtype=jnp.int32)
    slot = (jnp.where(flat, counts, 0).sum(axis=-1) - 1).reshape(G, S, len(masks))
    return [slot[..., k] for k in range(len(masks))], _count(masks[0]), counts[:, -1]


def _unranked(values: jax.Array, rank: jax.Array) -> jax.Array:
    return jnp.take_along_axis(values, jnp.argsort(rank, axis=1), axis=1)


def _normalised(gates: list[jax.Array]) -> list[jax.Array]:
    total = sum(gates[1:], gates[0])
    total = jnp.where(total > 0, total, 1.0)  # gates of padding may all be zero
    return [gate / total for gate in gates]


def _route_randomly(choice: _Choice, rules: Rules, least: jax.Array) -> _Choice:
    kept = choice.gate > least
    mask = choice.mask if rules.dropped_uses_slot else choice.mask & kept[..., None]
    return choice._replace(wanted=choice.wanted & kept, mask=mask)


def _any(masks: list[jax.Array]) -> jax.Array:
    found = masks[0]
    for mask in masks[1:]:
        found = found | mask
    return found


def _count(tokens: jax.Array) -> jax.Array:
    return tokens.sum(axis=1, dtype=jnp.int32)
