"""Dispatch by products with one-hot masks (GShard section 3.1, Algorithm 2): 2·S·E·C·M operations each way a group.

Dims: G groups of S tokens, E experts with C slots for each group, model dim M.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ....annotate import tag
from ..routing import Routing


class Masks(NamedTuple):
    """A routing as one-hot masks."""

    weights: jax.Array
    """[G, S, E, C] float32: the weight of expert e's output for token s, which sits in slot c of its buffer."""
    mask: jax.Array
    """[G, S, E, C] bool: the non-zero weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EinsumDispatch:
    """GShard's, Lingvo's and Mesh TensorFlow's way."""

    def prepare(self, routing: Routing, *, experts: int, capacity: int) -> Masks:
        """The combine weights, and the dispatch mask: where they are not zero."""
        weights = combine_weights(routing, experts, capacity)
        return Masks(tag(weights, "moe/combine_weights"), tag(weights > 0, "moe/dispatch_mask"))

    def send(self, prepared: Masks, inputs: jax.Array, *, experts: int, capacity: int) -> jax.Array:
        """GSEC, GSM -> EGCM: each token into the slots that it was given."""
        return dispatch(prepared.mask, inputs)

    def combine(self, prepared: Masks, returned: jax.Array) -> jax.Array:
        """GSEC, EGCM -> GSM: the weighted sum of what the experts say of each token."""
        return combine(prepared.weights, returned)


def combine_weights(routing: Routing, experts: int, capacity: int) -> jax.Array:
    """[G, S, E, C] float32: the weight of expert e's output for token s, which sits in slot c of its buffer.

    Made flat over E and C, because a small C as the minor dim would be padded to the width of the vector unit.
    """
    G, S, K = routing.expert.shape
    flat = _placed(routing, 0, experts, capacity)
    for k in range(1, K):
        flat = flat + _placed(routing, k, experts, capacity)
    return flat.reshape(G, S, experts, capacity)


def dispatch(mask: jax.Array, inputs: jax.Array) -> jax.Array:
    """GSEC, GSM -> EGCM. E and C are one dim X inside, for C is too small a dim."""
    G, S, E, C = mask.shape
    sent = jnp.einsum("GSX,GSM->GXM", mask.reshape(G, S, E * C).astype(inputs.dtype), inputs)
    return sent.reshape(G, E, C, -1).transpose(1, 0, 2, 3)


def combine(weights: jax.Array, returned: jax.Array) -> jax.Array:
    """GSEC, EGCM -> GSM."""
    G, S, E, C = weights.shape
    by_group = returned.transpose(1, 0, 2, 3).reshape(G, E * C, -1)
    return jnp.einsum("GSX,GXM->GSM", weights.reshape(G, S, E * C).astype(returned.dtype), by_group)


def _placed(routing: Routing, k: int, experts: int, capacity: int) -> jax.Array:
    """[G, S, E·C] float32: the weights of choice ``k`` at their expert and slot; a choice not kept has no place."""
    position = routing.expert[..., k] * capacity + routing.slot[..., k]
    places = jnp.where(routing.kept[..., k], position, -1)
    return routing.weight[..., k, None] * jax.nn.one_hot(places, experts * capacity, dtype=jnp.float32)
