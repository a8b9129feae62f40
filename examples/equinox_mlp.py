"""An Equinox model: its arrays are the step's argument, the rest of it is the step's own."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax


def training(width: int = 256) -> tuple[Any, tuple[Any, ...]]:
    """The step and its abstract arguments."""
    optimizer = optax.adamw(1e-3)
    whole = eqx.filter_eval_shape(eqx.nn.MLP, 64, 16, width, 2, key=jax.random.key(0))
    params, static = eqx.partition(whole, lambda leaf: isinstance(leaf, jax.ShapeDtypeStruct))

    def step(params: Any, opt: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, jax.Array]:
        def loss_of(params: Any) -> jax.Array:
            predicted = jax.vmap(eqx.combine(params, static))(batch["x"])
            return jnp.mean((predicted - batch["y"]) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(params)
        updates, opt = optimizer.update(gradients, opt, params)
        return eqx.apply_updates(params, updates), opt, loss

    batch = {"x": jax.ShapeDtypeStruct((64, 64), jnp.float32), "y": jax.ShapeDtypeStruct((64, 16), jnp.float32)}
    return step, (params, jax.eval_shape(optimizer.init, params), batch)
