"""Gating in two levels (Shazeer et al. 2017, appendix B): first a set of experts, then an expert of it.

Dims: G groups of S tokens, A sets of B experts each; expert e = a·B + b of E = A·B.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import jax
import jax.numpy as jnp

from ....annotate import tag
from ..routing import Params, Routing, Rules, assign
from .losses import squared_variation
from .noisy_top_k import Kept, Logits, keep_top_k, noisy_logits
from .router import Router


@dataclass(frozen=True, slots=True, kw_only=True)
class HierarchicalGate:
    """Noisy top-k of sets, and in each set of its experts; an expert weighs G_a·G_b|a (equation 12).

    ``rules.choices`` is the product of ``set_choices`` and the choices in a set, both 2 in the paper. Losses
    ``importance`` and ``load`` are of experts (equations 13 and 14). Weights: ``wg_set``, ``wg_set_noise`` [M, A],
    ``wg``, ``wg_noise`` [M, E].
    """

    sets: int
    """A."""
    set_choices: int = 2
    rules: Rules = field(default_factory=lambda: Rules(choices=4, normalise="never"))
    router: Router = field(default_factory=Router)
    noise_floor: float = 0.0
    """Least standard deviation of the noise; Tensor2Tensor has 0.01."""
    unbiased: bool = False
    """Whether the losses' variance divides by E-1."""

    def __call__(
        self, params: Params, inputs: jax.Array, valid: jax.Array, *, capacity: int, key: jax.Array | None
    ) -> Routing:
        """Routes ``inputs`` [G, S, M]. The noise draws from ``key``; without one load is counted, not estimated."""
        keys = (None, None) if key is None else jax.random.split(key)
        first = self._logits(params["wg_set"], params["wg_set_noise"], inputs, keys[0])
        second = self._logits(params["wg"], params["wg_noise"], inputs, keys[1])
        second = jax.tree.map(lambda x: x.reshape(*x.shape[:2], self.sets, -1), second)
        of_set = keep_top_k(first, self.set_choices)
        in_set = keep_top_k(second, self.rules.choices // self.set_choices)
        set_gates = jax.nn.softmax(jnp.where(of_set.kept, first.noisy, -jnp.inf), axis=-1)
        gates = set_gates[..., None] * jax.nn.softmax(jnp.where(in_set.kept, second.noisy, -jnp.inf), axis=-1)
        kept = of_set.kept[..., None] & in_set.kept
        scores = jnp.where(kept, gates, -1.0).reshape(*inputs.shape[:2], -1)
        flat = tag(gates.reshape(scores.shape), "moe/gates")
        routing = assign(flat, self.rules, capacity, valid=valid, scores=scores)
        counted = valid[..., None]
        sums = {"importance": jnp.where(counted, flat, 0.0).sum(axis=(0, 1)), "load": load(of_set, in_set, valid)}
        losses = {name: squared_variation(x, unbiased=self.unbiased) for name, x in sums.items()}
        return routing._replace(losses=losses)

    def _logits(self, wg: jax.Array, wg_noise: jax.Array, inputs: jax.Array, key: jax.Array | None) -> Logits:
        return noisy_logits(self.router, wg, wg_noise, inputs, key, floor=self.noise_floor)


def load(of_set: Kept, in_set: Kept, valid: jax.Array) -> jax.Array:
    """Load_ab = Load_a·Load_a(X^a)_b/|X^a|, X^a the tokens that chose set a (equation 14). [A, B]."""
    counted = valid[..., None]
    of_sets = jnp.where(counted, of_set.chance, 0.0).sum(axis=(0, 1))
    chose = of_set.kept & counted
    of_experts = jnp.where(chose[..., None], in_set.chance, 0.0).sum(axis=(0, 1))
    return (of_sets / jnp.maximum(chose.sum(axis=(0, 1)), 1))[:, None] * of_experts
