"""The router's product and its softmax, in float32 whatever the model computes in (Switch, section 2.4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp

from ....annotate import tag


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """How logits are made of tokens."""

    jitter: float = 0.0
    """Noise ε while training: uniform numbers in [1-ε, 1+ε)."""
    jitter_on: Literal["input", "logits"] = "input"
    """Whether they multiply the router's input, as in Switch's code, or are added to the logits, as in its
    pseudo-code (appendix F) and in FastMoE."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """bfloat16 is what Switch's Table 2 shows to diverge."""

    def logits(self, wg: jax.Array, inputs: jax.Array, key: jax.Array | None) -> jax.Array:
        """[G, S, E] float32 from ``inputs`` [G, S, M] and ``wg`` [M, E]. Jitter draws from ``key``, if there is one."""
        wide, noise_key = inputs.astype(self.dtype), key if self.jitter > 0 else None
        if noise_key is not None and self.jitter_on == "input":
            wide = wide * self._noise(noise_key, inputs.shape).astype(self.dtype)
        logits = jnp.einsum("GSM,ME->GSE", wide, wg.astype(self.dtype), precision=jax.lax.Precision.HIGHEST)
        logits = logits.astype(jnp.float32)
        if noise_key is not None and self.jitter_on == "logits":
            return logits + self._noise(noise_key, logits.shape)
        return logits

    def _noise(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, 1), shape, minval=1 - self.jitter, maxval=1 + self.jitter)


def probabilities(logits: jax.Array) -> jax.Array:
    """The softmax over experts, which plans name ``acts/moe/gates``: [G, S, E] float32."""
    return tag(jax.nn.softmax(logits, axis=-1), "moe/gates")
