"""Noisy top-k gating (Shazeer et al. 2017, section 2.1 and appendix A), flat and in two levels (appendix B).

Dims: G groups of S tokens, E experts; in two levels, A sets of B experts each, E = A·B.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..routing import Params, Routing, Rules, assign, best_experts
from .losses import squared_variation, z_loss
from .router import Router, probabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyTopKGate:
    """The softmax over the K best of noisy logits, with losses ``importance`` and ``load`` (equations 3 to 5, 8 to 11).

    Both sum over all groups: the paper's batch. Weights ``wg`` and ``wg_noise`` [M, E] start at zero (appendix A).
    """

    rules: Rules = field(default_factory=lambda: Rules(choices=4, normalise="never"))
    router: Router = field(default_factory=Router)
    noise_floor: float = 0.0
    """Least standard deviation of the noise; Tensor2Tensor has 0.01."""
    unbiased: bool = False
    """Whether the losses' variance divides by E-1, as in FastMoE's and Tutel's ports."""
    z: bool = False
    """Whether there is a z-loss, of the logits without noise."""

    def __call__(
        self, params: Params, inputs: jax.Array, valid: jax.Array, *, capacity: int, key: jax.Array | None
    ) -> Routing:
        """Routes ``inputs`` [G, S, M]. The noise draws from ``key``; without one load is counted, not estimated."""
        logits = noisy_logits(self.router, params["wg"], params["wg_noise"], inputs, key, floor=self.noise_floor)
        gated = keep_top_k(logits, self.rules.choices)
        gates = probabilities(jnp.where(gated.kept, logits.noisy, -jnp.inf))
        scores = jnp.where(gated.kept, logits.noisy, -jnp.inf)
        routing = assign(gates, self.rules, capacity, valid=valid, scores=scores)
        return routing._replace(losses=self._losses(logits, gates, gated.chance, valid))

    def _losses(self, logits: Logits, gates: jax.Array, chance: jax.Array, valid: jax.Array) -> dict[str, jax.Array]:
        counted = valid[..., None]
        importance = jnp.where(counted, gates, 0.0).sum(axis=(0, 1))
        load = jnp.where(counted, chance, 0.0).sum(axis=(0, 1))
        losses = {
            "importance": squared_variation(importance, unbiased=self.unbiased),
            "load": squared_variation(load, unbiased=self.unbiased),
        }
        return losses | ({"z": z_loss(logits.clean, valid)} if self.z else {})


class Logits(NamedTuple):
    """Logits [..., E] without and with noise, and the noise's standard deviation, None where there is no noise."""

    clean: jax.Array
    noisy: jax.Array
    spread: jax.Array | None


class Kept(NamedTuple):
    """What KeepTopK keeps, [..., E]."""

    kept: jax.Array
    """Bool: the K best."""
    chance: jax.Array
    """Float32: P(x, i), the chance that i is among the K best if its noise is drawn anew (equation 9). Where there is
    no noise, or all are kept, whether it is (as in Tensor2Tensor)."""


def noisy_logits(
    router: Router, wg: jax.Array, wg_noise: jax.Array, inputs: jax.Array, key: jax.Array | None, *, floor: float
) -> Logits:
    """x·wg, and with it noise of standard deviation softplus(x·wg_noise) + ``floor`` (equation 4) if there is a key."""
    jitter_key, noise_key = (None, None) if key is None else jax.random.split(key)
    clean = router.logits(wg, inputs, jitter_key)
    if noise_key is None:
        return Logits(clean, clean, None)
    spread = jax.nn.softplus(router.logits(wg_noise, inputs, None)) + floor
    return Logits(clean, clean + jax.random.normal(noise_key, clean.shape) * spread, spread)


def keep_top_k(logits: Logits, choices: int) -> Kept:
    """KeepTopK (equation 5), and the chances that the load is estimated by; ties go to the lowest."""
    experts = logits.noisy.shape[-1]
    best = best_experts(logits.noisy, choices + 1)
    kept = best[0][1]
    for _, mask in best[1:choices]:
        kept = kept | mask
    if logits.spread is None or choices >= experts:
        return Kept(kept, kept.astype(jnp.float32))
    last, next_one = (jnp.where(mask, logits.noisy, 0.0).sum(axis=-1, keepdims=True) for _, mask in best[-2:])
    threshold = jnp.where(kept, next_one, last)  # the K-th largest of the others
    return Kept(kept, jax.scipy.stats.norm.cdf((logits.clean - threshold) / logits.spread))
