"""Small training steps whose parameters carry logical names, for tests of ``meshwright convert``."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx

TX = optax.adamw(1e-2)
BATCH = {"x": jax.ShapeDtypeStruct((64, 32), jnp.float32)}
INIT = nn.initializers.lecun_normal()


def step_of(apply: Any) -> Any:
    def step(params: Any, opt: Any, batch: Any) -> Any:
        value, grads = jax.value_and_grad(lambda p: jnp.mean(apply(p, batch["x"]) ** 2))(params)
        updates, opt = TX.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, value

    return step


class Mlp(nn.Module):
    """Three blocks; kernels with logical names, the biases of ``wi`` without."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        named = nn.with_logical_partitioning
        for i in range(3):
            wi = nn.Dense(64, kernel_init=named(INIT, ("embed", "mlp")), name=f"wi_{i}")
            bias = named(nn.initializers.zeros, ("norm",))
            wo = nn.Dense(32, kernel_init=named(INIT, ("mlp", "embed")), bias_init=bias, name=f"wo_{i}")
            x = x + wo(nn.relu(wi(x)))
        return x


def linen(width: int = 32) -> Any:
    batch = {"x": jax.ShapeDtypeStruct((64, width), jnp.float32)}
    params = jax.eval_shape(Mlp().init, jax.random.key(0), batch["x"])
    return step_of(Mlp().apply), (params, jax.eval_shape(TX.init, params), batch)


class Layer(nnx.Module):
    def __init__(self, rngs: Any) -> None:
        kernel = nnx.with_partitioning(INIT, ("embed", "mlp"))
        self.wi = nnx.Linear(32, 64, kernel_init=kernel, rngs=rngs)
        self.wo = nnx.Linear(64, 32, kernel_init=nnx.with_partitioning(INIT, ("tensor", "embed")), rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.wo(nnx.relu(self.wi(x)))


def of_nnx() -> Any:
    with nnx.use_eager_sharding(False):
        graph, params = nnx.split(nnx.eval_shape(lambda: Layer(nnx.Rngs(0))))
    step = step_of(lambda p, x: nnx.merge(graph, p)(x))
    return step, (params, jax.eval_shape(TX.init, params), BATCH)


def unnamed() -> Any:
    params = {"wi": jax.ShapeDtypeStruct((32, 64), jnp.float32), "wo": jax.ShapeDtypeStruct((64, 32), jnp.float32)}
    step = step_of(lambda p, x: jax.nn.relu(x @ p["wi"]) @ p["wo"])
    return step, (params, jax.eval_shape(TX.init, params), BATCH)


class OwnRules(nn.Module):
    """A kernel whose box has rules of its own."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        kernel = nn.with_logical_partitioning(INIT, ("embed", "mlp"), rules=(("embed", "data"),))
        return nn.Dense(64, kernel_init=kernel)(x)


def own_rules() -> Any:
    params = jax.eval_shape(OwnRules().init, jax.random.key(0), BATCH["x"])
    return step_of(OwnRules().apply), (params, jax.eval_shape(TX.init, params), BATCH)
