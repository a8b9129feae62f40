"""Gates by which experts choose tokens: expert choice, and the strictly balanced gate of the sparsely-gated MoE.

Each expert takes its best tokens of a group, so all are equally busy, and a token may have any number of experts from
none to E. Which tokens are taken depends on all tokens of a group, later ones too: not for a decoder.
Dims: G groups of S tokens, E experts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from ..routing import Params, Routing, Statistics
from .losses import z_loss
from .router import Router, probabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertChoiceGate:
    """Each expert takes as many tokens as it has slots, those with the largest gates (Zhou et al. 2022, section 3.2).

    Their outputs weigh as the gates, softmaxed over experts; capacity is S·f/E for f experts a token on average.
    """

    router: Router = field(default_factory=Router)
    z: bool = False
    """Whether there is a z-loss."""

    def __call__(
        self, params: Params, inputs: jax.Array, valid: jax.Array, *, capacity: int, key: jax.Array | None
    ) -> Routing:
        """Routes ``inputs`` [G, S, M] by weights ``wg`` [M, E]; jitter draws from ``key``, if there is one."""
        logits = self.router.logits(params["wg"], inputs, key)
        gates = probabilities(logits)
        places = ranks(gates, valid)
        routing = chosen_by_experts(gates, places, valid[..., None] & (places < capacity), capacity, valid)
        return routing._replace(losses={"z": z_loss(logits, valid)}) if self.z else routing


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchwiseGate:
    """The strictly balanced gate (Shazeer et al. 2017, appendix F): each expert takes its m = k·S/E best tokens.

    A token's gates are made to sum to one over the experts that take it (equation 15). While training (with a key) the
    batchwise mask decides (equation 18); otherwise thresholds do (equation 19), weights ``threshold`` [E] that the loss
    ``batchwise`` trains (equation 20). A group is the paper's batch.
    """

    choices: int = 4
    """k."""
    router: Router = field(default_factory=Router)

    def __call__(
        self, params: Params, inputs: jax.Array, valid: jax.Array, *, capacity: int, key: jax.Array | None
    ) -> Routing:
        """Routes ``inputs`` [G, S, M] by weights ``wg`` [M, E] and ``threshold`` [E]."""
        gates = probabilities(self.router.logits(params["wg"], inputs, key))
        places, counted = ranks(gates, valid), valid[..., None]
        experts = gates.shape[-1]
        share = self.choices * valid.sum(axis=1, dtype=jnp.int32)[:, None, None] // experts
        batchwise = counted & (places < share)
        over = counted & (gates > params["threshold"])
        apart = over.astype(jnp.float32) - batchwise
        loss = (apart * (gates - params["threshold"])).sum(axis=(1, 2))
        chosen = over if key is None else batchwise
        masked = jnp.where(chosen, gates, 0.0)
        weights = masked / jnp.maximum(masked.sum(axis=-1, keepdims=True), 1e-9)
        places = ranks(jnp.where(chosen, gates, -1.0), valid)  # those that are taken come first
        return chosen_by_experts(weights, places, chosen, capacity, valid)._replace(losses={"batchwise": loss})


def ranks(scores: jax.Array, valid: jax.Array) -> jax.Array:
    """The place of each token among those of its group that are not padding, by each expert's scores: [G, S, E] int32.

    The best has place 0; the earlier token wins a tie; padding comes last.
    """
    ordered = jnp.argsort(jnp.where(valid[..., None], -scores, jnp.inf), axis=1, stable=True)
    return jnp.argsort(ordered, axis=1).astype(jnp.int32)


def chosen_by_experts(
    weights: jax.Array, places: jax.Array, chosen: jax.Array, capacity: int, valid: jax.Array
) -> Routing:
    """A routing with a choice for every expert, K = E, of those ``chosen``. Arguments [G, S, E], ``valid`` [G, S]."""
    kept, experts = chosen & (places < capacity), weights.shape[-1]
    load = _count(chosen)
    statistics = Statistics(
        tokens=_count(valid),
        choices=load.sum(axis=-1),
        dropped=_count(chosen & ~kept),
        overflowed=_count(valid & ~kept.any(axis=-1)),
        first=load,
        load=load,
    )
    expert = jnp.broadcast_to(jnp.arange(experts, dtype=jnp.int32), weights.shape)
    return Routing(expert, weights, jnp.where(chosen, places, -1), kept & (weights > 0), {}, statistics)


def _count(tokens: jax.Array) -> jax.Array:
    return tokens.sum(axis=1, dtype=jnp.int32)
