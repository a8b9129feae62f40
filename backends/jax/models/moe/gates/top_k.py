"""Gates that send each token to its K most probable experts: GShard's with K = 2, Switch's with K = 1, and others."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import jax
import jax.numpy as jnp

from ..routing import Params, Routing, Rules, assign
from .losses import balance, second_place, z_loss
from .router import Router, probabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKGate:
    """The softmax of the router's logits, and the rules by which its best experts take tokens.

    The defaults are GShard's (section 2.2, Algorithm 1).
    """

    rules: Rules = field(default_factory=lambda: Rules(choices=2, threshold=0.5))
    router: Router = field(default_factory=Router)
    counted: Literal["first", "all", "mean"] = "first"
    """The choices that the balance loss counts: first ones, all K, or all K over K (MegaBlocks)."""
    second_place: bool = False
    """Whether second choices have a balance loss of their own (Mesh TensorFlow's option)."""
    z: bool = False
    """Whether there is a z-loss."""
    sampled: bool = False
    """Whether choices after the first are drawn by their gates, by Gumbel noise (Lingvo's policy ``sampling``)."""
    uniform: bool | jax.Array = False
    """Whether choices go round the experts in turn whatever the gates say (MegaBlocks' ``uniform_expert_assignment``,
    for measurements; GShard's authors have it while the learning rate warms up)."""

    def __call__(
        self, params: Params, inputs: jax.Array, valid: jax.Array, *, capacity: int, key: jax.Array | None
    ) -> Routing:
        """Routes ``inputs`` [G, S, M] by weights ``wg`` [M, E]. Whatever is random draws from ``key``, if any."""
        logits = self.router.logits(params["wg"], inputs, key)
        uniform = None
        if key is not None and self.rules.threshold is not None:
            uniform = jax.random.uniform(key, inputs.shape[:2])
        gates = probabilities(logits)
        scores = self._scores(gates, key)
        routing = self.route(gates, capacity, uniform=uniform, valid=valid, scores=scores)
        return _with(routing, "z", z_loss(logits, valid)) if self.z else routing

    def route(
        self,
        gates: jax.Array,
        capacity: int,
        *,
        uniform: jax.Array | None = None,
        valid: jax.Array,
        scores: jax.Array | None = None,
    ) -> Routing:
        """The routing of probabilities [G, S, E], with its balance losses; arguments as of ``assign``."""
        routing = assign(gates, self.rules, capacity, uniform=uniform, valid=valid, scores=scores)
        statistics = routing.statistics
        counts = statistics.first if self.counted == "first" else statistics.load
        counts = counts / routing.expert.shape[-1] if self.counted == "mean" else counts
        routing = _with(routing, "balance", balance(gates, counts, valid))
        if not self.second_place:
            return routing
        seconds = statistics.load - statistics.first
        return _with(routing, "second_place", second_place(gates, routing.expert[..., 0], seconds, valid))

    def _scores(self, gates: jax.Array, key: jax.Array | None) -> jax.Array | None:
        """What the choices are made by, [G, S, E], where it is not the gates."""
        if self.uniform is False:
            return self._by_gates(gates, key)
        others = self._by_gates(gates, key)
        return jnp.where(self.uniform, _in_turn(gates.shape, self.rules.choices), gates if others is None else others)

    def _by_gates(self, gates: jax.Array, key: jax.Array | None) -> jax.Array | None:
        if not self.sampled or key is None:
            return None
        drawn = jnp.log(gates) + jax.random.gumbel(jax.random.fold_in(key, 2), gates.shape)
        best = jax.nn.one_hot(jnp.argmax(gates, axis=-1), gates.shape[-1], dtype=bool)
        return jnp.where(best, jnp.inf, drawn)


def _in_turn(shape: tuple[int, ...], choices: int) -> jax.Array:
    """Scores [G, S, E] by which token s of a group chooses experts s·K, s·K + 1 ... modulo E, in this order."""
    G, S, E = shape
    turn = (jnp.arange(E) - choices * jnp.arange(S)[:, None]) % E
    return jnp.broadcast_to(-turn.astype(jnp.float32), (G, S, E))


def _with(routing: Routing, name: str, loss: jax.Array) -> Routing:
    return routing._replace(losses={**routing.losses, name: loss})
