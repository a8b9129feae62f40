"""The experts' work on what was sent to them.

Dims: E experts with C slots for each of G groups, model dim M, hidden dim H.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import jax
import jax.numpy as jnp

from ...annotate import tag
from .routing import Params


class Experts(Protocol):
    """What experts do: a frozen value."""

    def __call__(self, params: Params, sent: Any, *, key: jax.Array | None) -> Any:
        """What each expert says of the tokens sent to it, laid out as ``sent``; dropout draws from ``key``."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """wo·ReLU(wi·x), without biases (GShard equation 2)."""

    def __call__(self, params: Params, sent: jax.Array, *, key: jax.Array | None) -> jax.Array:
        """[E, G, C, M] from ``sent`` [E, G, C, M], ``wi`` [E, M, H] and ``wo`` [E, H, M]."""
        return experts(params, sent)


def experts(params: Params, sent: jax.Array) -> jax.Array:
    """The experts' feed-forward: lines 5 and 6 of Algorithm 2. [E, G, C, M]."""
    wi, wo = params["wi"].astype(sent.dtype), params["wo"].astype(sent.dtype)
    hidden = tag(jax.nn.relu(jnp.einsum("EGCM,EMH->EGCH", sent, wi)), "moe/hidden")
    return tag(jnp.einsum("EGCH,EHM->EGCM", hidden, wo), "moe/expert_outputs")
