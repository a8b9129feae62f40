"""Parameters as Haiku has them, ``{"mlp/~/linear_0": {"w": ..., "b": ...}}``: module names with slashes in them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

SIZES = (64, 256, 256, 16)
RATE = 0.01


def _linear(index: int) -> str:
    return f"mlp/~/linear_{index}"


def apply(params: Any, x: jax.Array) -> jax.Array:
    """Predictions, (batch, 16), of features, (batch, 64)."""
    for i in range(len(SIZES) - 1):
        own = params[_linear(i)]
        x = x @ own["w"] + own["b"]
        x = jax.nn.relu(x) if i < len(SIZES) - 2 else x
    return x


def step(params: Any, momentum: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, jax.Array]:
    """Gradient descent with momentum."""
    loss, gradients = jax.value_and_grad(lambda p: jnp.mean((apply(p, batch["x"]) - batch["y"]) ** 2))(params)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, gradients)
    return jax.tree.map(lambda p, m: p - RATE * m, params, momentum), momentum, loss


def training() -> tuple[Any, tuple[Any, ...]]:
    """The step and its abstract arguments."""
    params = {
        _linear(i): {"w": jax.ShapeDtypeStruct(SIZES[i : i + 2], jnp.float32), "b": _vector(SIZES[i + 1])}
        for i in range(len(SIZES) - 1)
    }
    batch = {"x": jax.ShapeDtypeStruct((64, 64), jnp.float32), "y": jax.ShapeDtypeStruct((64, 16), jnp.float32)}
    return step, (params, params, batch)


def _vector(size: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((size,), jnp.float32)
