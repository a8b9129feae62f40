"""The position-wise mixture-of-experts layer: gate, dispatch, exchange, experts, and the way back.

Dims: G groups of S tokens, E experts with C slots for each group, model dim M.
"""

from __future__ import annotations

from typing import Any

import jax

from ...annotate import tag
from .capacity import at_capacity
from .report import MoeReport, report_of
from .routing import Params, Routing
from .settings import MoeSettings


def moe_layer(
    params: Params, x: jax.Array, valid: jax.Array, settings: MoeSettings, *, key: jax.Array | None
) -> tuple[jax.Array, MoeReport]:
    """Sends each token of ``x`` [B, T, M] to some experts and returns what they say, [B, T, M].

    ``valid`` [B, T] bool marks tokens that are not padding. Noise, random routing and the experts' dropout draw from
    ``key``; without one there is none. A token that no expert takes gets zero: the residual connection carries it.
    """
    B, T, M = x.shape
    inputs = tag(x.reshape(settings.groups, -1, M), "moe/inputs")
    grouped = valid.reshape(settings.groups, -1)
    routing = settings.gate(params, inputs, grouped, capacity=settings.capacity.slots, key=key)
    combined, refused = at_capacity(
        settings.capacity, routing, lambda slots: _through_experts(params, inputs, routing, settings, slots, key)
    )
    return tag(combined, "moe/combined").reshape(B, T, M), report_of(routing, refused)


def _through_experts(
    params: Params, inputs: jax.Array, routing: Routing, settings: MoeSettings, slots: int, key: jax.Array | None
) -> tuple[jax.Array, jax.Array]:
    """[G, S, M]: dispatch, exchange, experts, and the way back, in ``slots`` slots an expert; rows refused, int32."""
    prepared = settings.dispatch.prepare(routing, experts=settings.experts, capacity=slots)
    sent = settings.dispatch.send(prepared, inputs, experts=settings.experts, capacity=slots)

    def work(weights: Params, arrived: Any, key: jax.Array | None) -> Any:
        return settings.work(weights, tag(arrived, "moe/dispatched"), key=key)

    weights = settings.work.weights(params, inputs.dtype)
    exchanged = settings.exchange(work, weights, sent, key=key)
    return settings.dispatch.combine(prepared, exchanged.returned), exchanged.refused
