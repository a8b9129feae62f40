"""A Flax NNX model and its optimiser: what a step changes is their state, one pytree."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx


class Mlp(nnx.Module):
    """A classifier with one wide hidden layer."""

    def __init__(self, width: int, rngs: nnx.Rngs):
        self.norm = nnx.LayerNorm(64, rngs=rngs)
        self.wi = nnx.Linear(64, width, rngs=rngs)
        self.wo = nnx.Linear(width, 16, rngs=rngs)

    def __call__(self, x: jax.Array) -> jax.Array:
        """Logits, (batch, 16), of features, (batch, 64)."""
        return self.wo(nnx.relu(self.wi(self.norm(x))))


def training(width: int = 256) -> tuple[Any, tuple[Any, ...]]:
    """The step and its abstract arguments."""

    def build() -> tuple[Mlp, nnx.Optimizer[Mlp]]:
        model = Mlp(width, nnx.Rngs(0))
        return model, nnx.Optimizer(model, optax.adamw(1e-3), wrt=nnx.Param)

    graph, state = nnx.split(nnx.eval_shape(build))

    def step(state: Any, batch: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
        model, optimizer = nnx.merge(graph, state)

        def loss_of(model: Mlp) -> jax.Array:
            logits = model(batch["x"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

        loss, gradients = nnx.value_and_grad(loss_of)(model)
        optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), loss

    batch = {"x": jax.ShapeDtypeStruct((64, 64), jnp.float32), "label": jax.ShapeDtypeStruct((64,), jnp.int32)}
    return step, (state, batch)
