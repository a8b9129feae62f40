"""Gates that send each token to its K most probable experts: GShard's with K = 2, Switch's with K = 1, and between."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import jax

from ..routing import Params, Routing, Rules, assign
from .losses import balance
from .router import logits_of, probabilities


@dataclass(frozen=True, slots=True, kw_only=True)
class TopKGate:
    """The softmax of the router's logits, and the rules by which its best experts take tokens.

    The defaults are GShard's Algorithm 1.
    """

    rules: Rules = field(default_factory=lambda: Rules(choices=2, threshold=0.5))
    counted: Literal["first", "all"] = "first"
    """The choices that the balance loss counts."""

    def __call__(
        self, params: Params, inputs: jax.Array, valid: jax.Array, *, capacity: int, key: jax.Array | None
    ) -> Routing:
        """Routes ``inputs`` [G, S, M] by weights ``wg`` [M, E]. Whatever is random draws from ``key``, if any."""
        random = key is not None and self.rules.threshold is not None
        uniform = jax.random.uniform(key, inputs.shape[:2]) if random else None
        gates = probabilities(logits_of(params["wg"], inputs))
        return self.route(gates, capacity, uniform=uniform, valid=valid)

    def route(self, gates: jax.Array, capacity: int, *, uniform: jax.Array | None, valid: jax.Array) -> Routing:
        """The routing of probabilities [G, S, E], with the balance loss; arguments as of ``assign``."""
        routing = assign(gates, self.rules, capacity, uniform=uniform, valid=valid)
        counts = routing.statistics.first if self.counted == "first" else routing.statistics.load
        return routing._replace(losses={"balance": balance(gates, counts, valid)})
