"""Layers stacked along a dim and gone through by ``scan``; each is a block that ``remat:`` may compute again."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw


def loss_of(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
    """The mean squared error after all layers."""

    @mw.remat
    def layer(x: jax.Array, own: Any) -> jax.Array:
        hidden = mw.tag(jax.nn.relu(x @ own["wi"]), "hidden")
        return x + hidden @ own["wo"]

    x, _ = jax.lax.scan(lambda x, own: (layer(x, own), None), batch["x"], params)
    return jnp.mean((x - batch["y"]) ** 2)


def step(params: Any, batch: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
    """Gradient descent."""
    loss, gradients = jax.value_and_grad(loss_of)(params, batch)
    return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients), loss


def training(layers: int = 6) -> tuple[Any, tuple[Any, ...]]:
    """The step and its abstract arguments."""
    params = {
        "wi": jax.ShapeDtypeStruct((layers, 64, 256), jnp.float32),
        "wo": jax.ShapeDtypeStruct((layers, 256, 64), jnp.float32),
    }
    batch = {name: jax.ShapeDtypeStruct((64, 64), jnp.float32) for name in ("x", "y")}
    return step, (params, batch)
