"""A Switch layer with its gradient: what the communication of layouts is read off.

Dims: G groups of S tokens (those of a core), model dim M, hidden dim H, E experts with C slots for each group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from meshwright.backends.jax.annotate import propagation_barrier, tag
from meshwright.backends.jax.models.moe.dispatch.einsum import combine, dispatch

WORD, WIDE = 2, 4
"""Bytes of bfloat16, which the layer computes in, and of float32, which the router does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Dims of the layer; ``experts`` 0 is a dense feed-forward layer."""

    groups: int
    experts: int
    tokens: int = 512
    model_dim: int = 1024
    hidden_dim: int = 8192

    @property
    def slots(self) -> int:
        """C: slots of an expert for one group, at a capacity factor of 1 (Switch, equation 3)."""
        return self.tokens // max(1, self.experts)

    @property
    def weight_bytes(self) -> int:
        """P: bytes of all experts' weights, or of the dense layer's."""
        return 2 * max(1, self.experts) * self.model_dim * self.hidden_dim * WORD

    @property
    def router_bytes(self) -> int:
        """Bytes of the router's gradient."""
        return self.model_dim * self.experts * WIDE

    @property
    def batch_bytes(self) -> int:
        """Bytes of [B, M]: all tokens."""
        return self.groups * self.tokens * self.model_dim * WORD

    @property
    def slot_bytes(self) -> int:
        """Bytes of [E, C, M]: a group's tokens in their slots; Tutel's C_g."""
        return self.experts * self.slots * self.model_dim * WORD


def step_of(sizes: Sizes) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The layer with its vector-Jacobian product, and its abstract arguments (params, batch).

    ``batch`` has the tokens and the gradient of what the layer says of them, so that the layer alone is measured.
    """
    layer = switch_layer if sizes.experts else feed_forward

    def step(params: Any, batch: Any) -> Any:
        out, pull = jax.vjp(lambda p, x: layer(sizes, p, x), params, batch["tokens"])
        return out, pull(batch["gradient"])

    tokens = jax.ShapeDtypeStruct((sizes.groups, sizes.tokens, sizes.model_dim), jnp.bfloat16)
    return step, (parameters(sizes), {"tokens": tokens, "gradient": tokens})


def parameters(sizes: Sizes) -> dict[str, jax.ShapeDtypeStruct]:
    M, H, E = sizes.model_dim, sizes.hidden_dim, sizes.experts
    many = (E,) if E else ()
    params = {"wi": jax.ShapeDtypeStruct((*many, M, H), jnp.bfloat16)}
    params["wo"] = jax.ShapeDtypeStruct((*many, H, M), jnp.bfloat16)
    return params | ({"router": jax.ShapeDtypeStruct((M, E), jnp.float32)} if E else {})


def feed_forward(_: Sizes, params: Any, x: jax.Array) -> jax.Array:
    """The dense layer: ReLU(x·wi)·wo."""
    hidden = tag(jax.nn.relu(jnp.einsum("GSM,MH->GSH", x, params["wi"])), "hidden")
    return jnp.einsum("GSH,HM->GSM", hidden, params["wo"])


def switch_layer(sizes: Sizes, params: Any, x: jax.Array) -> jax.Array:
    """Every token to its best expert (Switch, section 2.1); what finds no slot is dropped.

    Tokens in slots have two names on the way there, ``sent`` and ``dispatched``, and two on the way back, ``outputs``
    and ``returned``: a layout may change in two steps, an exchange and a gathering.
    """
    gates, mask = route(sizes, params["router"], x)
    sent = propagation_barrier(dispatch(mask, x), allowed="forward")
    dispatched = tag(tag(sent, "sent"), "dispatched")
    hidden = tag(jax.nn.relu(jnp.einsum("EGCM,EMH->EGCH", dispatched, params["wi"])), "hidden")
    outputs = tag(jnp.einsum("EGCH,EHM->EGCM", hidden, params["wo"]), "outputs")
    returned = propagation_barrier(tag(outputs, "returned"), allowed="backward")
    return tag(combine(gates[..., None, None] * mask, returned), "combined")


def route(sizes: Sizes, router: jax.Array, x: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The gate of each token [G, S], float32, and the slot that it gets [G, S, E, C], bool."""
    probabilities = jax.nn.softmax(jnp.einsum("GSM,ME->GSE", x.astype(jnp.float32), router), axis=-1)
    chosen = jax.nn.one_hot(jnp.argmax(probabilities, axis=-1), sizes.experts, dtype=jnp.int32)
    slot = jnp.where(chosen > 0, jnp.cumsum(chosen, axis=1) - 1, -1)
    return probabilities.max(axis=-1), jax.nn.one_hot(slot, sizes.slots, dtype=bool)
