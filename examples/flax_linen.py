"""A Flax Linen model in a ``TrainState``, its parameters in boxes with logical names (see ``meshwright convert``)."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training.train_state import TrainState


class Block(nn.Module):
    """Self-attention and a feed-forward layer, each added to its input."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """The next activations, (batch, length, 64), of these."""
        named, init = nn.with_logical_partitioning, nn.initializers.lecun_normal()
        attention = nn.MultiHeadDotProductAttention(
            num_heads=4,
            kernel_init=named(init, ("embed", "heads", "head_dim")),
            out_kernel_init=named(init, ("heads", "head_dim", "embed")),
            use_bias=False,
        )
        x = x + attention(nn.LayerNorm()(x))
        hidden = nn.Dense(256, kernel_init=named(init, ("embed", "mlp")), use_bias=False)(nn.LayerNorm()(x))
        return x + nn.Dense(64, kernel_init=named(init, ("mlp", "embed")), use_bias=False)(nn.gelu(hidden))


class Decoder(nn.Module):
    """Two blocks between an embedding and its transpose."""

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits, (batch, length, 128), of tokens, (batch, length)."""
        table = nn.with_logical_partitioning(nn.initializers.normal(0.1), ("vocab", "embed"))
        embed = nn.Embed(128, 64, embedding_init=table)
        x = embed(tokens)
        for _ in range(2):
            x = Block()(x)
        return embed.attend(nn.LayerNorm()(x))


def training(batch_size: int = 16) -> tuple[Any, tuple[Any, ...]]:
    """The step and its abstract arguments."""
    model = Decoder()
    tokens = jax.ShapeDtypeStruct((batch_size, 32), jnp.int32)

    def build() -> TrainState:
        params = model.init(jax.random.key(0), jnp.zeros(tokens.shape, tokens.dtype))
        return TrainState.create(apply_fn=model.apply, params=params, tx=optax.adamw(1e-3))

    def step(state: TrainState, batch: dict[str, jax.Array]) -> tuple[TrainState, jax.Array]:
        def loss_of(params: Any) -> jax.Array:
            logits = state.apply_fn(params, batch["tokens"])
            return optax.softmax_cross_entropy_with_integer_labels(logits, batch["next"]).mean()

        loss, gradients = jax.value_and_grad(loss_of)(state.params)
        return state.apply_gradients(grads=gradients), loss

    return step, (jax.eval_shape(build), {"tokens": tokens, "next": tokens})
