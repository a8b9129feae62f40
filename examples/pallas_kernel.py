"""A step with a Pallas kernel: SiLU by blocks of rows. JAX partitions no kernel by itself, so it stands in a
``shard_map``; a plan for this step has its mesh.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.sharding import AbstractMesh, PartitionSpec

ROWS = PartitionSpec("data", "model")
BLOCK_ROWS = 16


def _kernel(source: Any, target: Any) -> None:
    x = source[...]
    target[...] = x * jax.nn.sigmoid(x)


def _silu(x: jax.Array, mesh: AbstractMesh, interpret: bool) -> jax.Array:
    def of_one_device(part: jax.Array) -> jax.Array:
        block = pl.BlockSpec((BLOCK_ROWS, part.shape[1]), lambda i: (i, 0))
        form = jax.ShapeDtypeStruct(part.shape, part.dtype)
        grid = (part.shape[0] // BLOCK_ROWS,)
        call = pl.pallas_call(
            _kernel, out_shape=form, grid=grid, in_specs=[block], out_specs=block, interpret=interpret
        )
        return call(part)

    return jax.shard_map(of_one_device, mesh=mesh, in_specs=ROWS, out_specs=ROWS, check_vma=False)(x)


def training(data: int = 4, model: int = 2, interpret: bool = True) -> tuple[Any, tuple[Any, ...]]:
    """The step and its abstract arguments; the mesh is ``data`` by ``model`` devices.

    ``interpret`` runs the kernel as plain JAX, as CPUs must.
    """
    mesh = AbstractMesh((data, model), ("data", "model"))

    @jax.custom_vjp
    def silu(x: jax.Array) -> jax.Array:
        return _silu(x, mesh, interpret)

    def backward(x: jax.Array, gradient: jax.Array) -> tuple[jax.Array]:
        gate = jax.nn.sigmoid(x)
        return (gradient * gate * (1 + x * (1 - gate)),)

    silu.defvjp(lambda x: (_silu(x, mesh, interpret), x), backward)

    def step(params: Any, batch: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
        def loss_of(params: Any) -> jax.Array:
            return jnp.mean((silu(batch["x"] @ params["wi"]) @ params["wo"] - batch["y"]) ** 2)

        loss, gradients = jax.value_and_grad(loss_of)(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss

    params = {
        "wi": jax.ShapeDtypeStruct((128, 256), jnp.float32),
        "wo": jax.ShapeDtypeStruct((256, 128), jnp.float32),
    }
    batch = {name: jax.ShapeDtypeStruct((128, 128), jnp.float32) for name in ("x", "y")}
    return step, (params, batch)
