"""A step with a region that is written for one device: a running normalisation over the whole batch, by ``shard_map``.

The region names the mesh's axes and their sizes, so a plan for this step has this mesh.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AbstractMesh, PartitionSpec

ROWS = PartitionSpec("data", "model")


def normalised(x: jax.Array, mesh: AbstractMesh) -> jax.Array:
    """``x``, (batch, width), with each column scaled by its mean square over the whole batch."""

    def of_one_device(part: jax.Array) -> jax.Array:
        mean = jax.lax.pmean(jnp.mean(part**2, axis=0), "data")
        return part * jax.lax.rsqrt(mean + 1e-6)

    return jax.shard_map(of_one_device, mesh=mesh, in_specs=ROWS, out_specs=ROWS)(x)


def training(data: int = 4, model: int = 2) -> tuple[Any, tuple[Any, ...]]:
    """The step and its abstract arguments; the mesh is ``data`` by ``model`` devices."""
    mesh = AbstractMesh((data, model), ("data", "model"))

    def loss_of(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        return jnp.mean((normalised(batch["x"] @ params["wi"], mesh) @ params["wo"] - batch["y"]) ** 2)

    def step(params: Any, batch: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(params, batch)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), loss

    params = {
        "wi": jax.ShapeDtypeStruct((64, 256), jnp.float32),
        "wo": jax.ShapeDtypeStruct((256, 64), jnp.float32),
    }
    batch = {name: jax.ShapeDtypeStruct((64, 64), jnp.float32) for name in ("x", "y")}
    return step, (params, batch)
