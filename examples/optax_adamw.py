"""A training step with Optax: clipping, a schedule, AdamW without decay of vectors, gradients added up over parts."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

PARTS = 2


def optimizer() -> optax.GradientTransformation:
    """AdamW with warm-up and clipping; vectors do not decay."""
    schedule = optax.warmup_cosine_decay_schedule(0.0, 1e-3, 10, 100)
    decayed = lambda params: jax.tree.map(lambda leaf: leaf.ndim > 1, params)  # noqa: E731
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, mask=decayed))


def loss_of(params: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    """The mean squared error of a gated layer."""
    hidden = jax.nn.silu(x @ params["gate"]) * (x @ params["up"])
    return jnp.mean((hidden @ params["down"] * params["scale"] - y) ** 2)


def step(params: Any, opt: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any, jax.Array]:
    """One update from gradients of ``PARTS`` parts of the batch, one after the other."""
    parts = jax.tree.map(lambda leaf: leaf.reshape(PARTS, -1, leaf.shape[-1]), batch)

    def add(total: Any, part: Any) -> tuple[Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(params, part["x"], part["y"])
        return jax.tree.map(jnp.add, total, gradients), loss

    total, losses = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), parts)
    updates, opt = optimizer().update(jax.tree.map(lambda g: g / PARTS, total), opt, params)
    return optax.apply_updates(params, updates), opt, losses.mean()


def training() -> tuple[Any, tuple[Any, ...]]:
    """The step and its abstract arguments."""
    shapes = {"gate": (64, 256), "up": (64, 256), "down": (256, 64), "scale": (64,)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    batch = {name: jax.ShapeDtypeStruct((64, 64), jnp.float32) for name in ("x", "y")}
    return step, (params, jax.eval_shape(optimizer().init, params), batch)
