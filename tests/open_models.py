"""Models whose settings a plan may leave open: small ones, some of whose combinations are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
from meshwright.backends.jax.models.moe.exchange.manual import ManualExchange
from meshwright.backends.jax.models.moe.exchange.routes import Direct
from meshwright.backends.jax.models.moe.exchange.sharing import Sharing, shared
from meshwright.backends.jax.models.moe.experts import FeedForward

EXPERTS, GROUPS, TOKENS, DIM, HIDDEN = 2, 8, 16, 32, 64
SPLIT = {"a": 2, "b": 2}
"""The axes that the hidden dim of each expert lies over, whatever r is."""


def declare_layer(settings: Mapping[str, Any], mesh: Mapping[str, int] | None) -> mw.Choices:
    values = {"r": (0, 1, 2, 4), "chunks": (1, 2), "capacity_factor": (1.0, 4.0)}
    return mw.Choices(values=values, at_run_time=("r", "chunks"), by="capacity_factor")


@mw.choices(declare_layer)
def layer(
    r: int = 1, chunks: int = 1, capacity_factor: float = 1.0, *, plan_mesh: Mapping[str, int] | None = None
) -> Any:
    """Two experts, each of which four devices share, over the first tokens of each group; weights grow by the mean."""
    if r == 0 and chunks > 1:
        raise ValueError("no token travels, in chunks even less")
    slots = int(capacity_factor * TOKENS / EXPERTS)
    route = Direct(axes=("expert",)) if r else None
    mesh, sharing = tuple((plan_mesh or {}).items()), shared(SPLIT, r) or Sharing()
    exchange = ManualExchange(mesh=mesh, owners=("expert",), route=route, sharing=sharing, chunks=chunks)

    def step(params: dict[str, jax.Array], x: jax.Array) -> Any:
        every = jnp.tile(x, (1, -(-slots // TOKENS), 1))[:, :slots]
        sent = jnp.broadcast_to(every, (EXPERTS, *every.shape))
        said = exchange(lambda w, x, key: FeedForward()(w, x, key=key), params, sent, key=None).returned
        mean = jnp.mean(said[:, :, :TOKENS])
        return {name: weight * (1 + mean) for name, weight in params.items()}, mean

    shapes = {"wi": (EXPERTS, DIM, HIDDEN), "wo": (EXPERTS, HIDDEN, DIM)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    return step, (params, jax.ShapeDtypeStruct((GROUPS, TOKENS, DIM), jnp.float32))


def declare(settings: Mapping[str, Any], mesh: Mapping[str, int] | None) -> mw.Choices:
    depths = (1, 2, 3) if settings.get("width") != 48 else (1,)
    values = {"width": (64, 48), "depth": depths, "rows": (32, 64)}
    return mw.Choices(values=values, at_run_time=("depth",), by="rows")


@mw.choices(declare)
def deep(width: int = 64, depth: int = 1, rows: int = 64, mode: str = "auto", scale: float = 1.0) -> Any:
    """``depth`` products in a row, each of half the width of the one before; two of width 64 are refused."""
    if (width, depth) == (64, 2):
        raise ValueError("two of 64 are one too many")
    if mode != "auto":
        raise ValueError(f"mode {mode}")

    def step(params: Any, x: jax.Array) -> Any:
        def loss(w: jax.Array) -> jax.Array:
            y = x
            for turn in range(depth):
                y = jnp.tanh(y[:, : 64 // 2**turn] @ w[: 64 // 2**turn]) * scale
            return jnp.mean(y**2)

        return params - jax.grad(loss)(params)

    return step, (jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((rows, width + 16), jnp.float32))


def layered(scale: float = 1.0) -> Any:
    """Six products in a row, each with weights of its own."""

    def step(params: list[jax.Array], x: jax.Array) -> Any:
        def loss(params: list[jax.Array]) -> jax.Array:
            y = x
            for w in params:
                y = y + jnp.tanh(y @ w) * scale
            return jnp.mean(y**2)

        return jax.tree.map(lambda w, g: w - g, params, jax.grad(loss)(params))

    params = [jax.ShapeDtypeStruct((512, 512), jnp.float32)] * 6
    return step, (params, jax.ShapeDtypeStruct((4096, 512), jnp.float32))


def biased(bias: bool = False) -> Any:
    """A product, whose bias is one tensor more."""

    def step(params: dict[str, jax.Array], x: jax.Array) -> Any:
        y = x @ params["w"]
        y = y + params["b"] if bias else y
        return jax.tree.map(lambda value: value * 0.9 + jnp.mean(y), params)

    shapes = {"w": (64, 64), **({"b": (64,)} if bias else {})}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    return step, (params, jax.ShapeDtypeStruct((64, 64), jnp.float32))


def blocks(depth: int = 2) -> Any:
    """Two products to a block, whose values may be computed again."""

    @mw.remat
    def block(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.tanh(x @ w) @ w)

    def step(w: jax.Array, x: jax.Array) -> Any:
        def loss(w: jax.Array) -> jax.Array:
            y = x
            for _ in range(depth):
                y = block(y, w)
            return jnp.mean(y**2)

        return w - jax.grad(loss)(w)

    return step, (jax.ShapeDtypeStruct((64, 64), jnp.float32), jax.ShapeDtypeStruct((256, 64), jnp.float32))


def shifted(by: int = 1) -> Any:
    """Adds a constant within a ``jax.jit``, which keeps it."""
    shift = np.full((64,), by, np.float32)
    add = jax.jit(lambda x: x + shift)

    def step(w: jax.Array, x: jax.Array) -> Any:
        return w * jnp.mean(add(x @ w))

    return step, (jax.ShapeDtypeStruct((64, 64), jnp.float32),) * 2


def plain(depth: int = 1, x: int = 8) -> Any:
    """A model that declares nothing."""

    def step(w: jax.Array) -> Any:
        return w * depth

    return step, (jax.ShapeDtypeStruct((x, 8), jnp.float32),)


@mw.choices(lambda settings, mesh: mw.Choices(values={"chunks": (1, 2)}, at_run_time=("chunks",), axes=("data",)))
def by_hand(chunks: int = 1, *, plan_mesh: Mapping[str, int] | None = None) -> Any:
    """A step in a region that is written for one device along ``data``, so that it has to know the mesh."""
    if plan_mesh is None or plan_mesh.get("data", 0) < 4:
        raise ValueError("four along data are wanted")
    axes = (jax.sharding.AxisType.Auto,) * len(plan_mesh)
    mesh = jax.sharding.AbstractMesh(tuple(plan_mesh.values()), tuple(plan_mesh), axis_types=axes)
    spec = jax.sharding.PartitionSpec("data")

    def local(w: jax.Array, x: jax.Array) -> jax.Array:
        parts = [jnp.tanh(part @ w) for part in jnp.split(x, chunks)]
        return jax.lax.pmean(jnp.concatenate(parts), "data")

    def step(w: jax.Array, x: jax.Array) -> Any:
        specs = (jax.sharding.PartitionSpec(), spec)
        return jax.shard_map(
            local, mesh=mesh, in_specs=specs, out_specs=jax.sharding.PartitionSpec(), axis_names={"data"}
        )(w, x)

    return step, (jax.ShapeDtypeStruct((32, 32), jnp.float32), jax.ShapeDtypeStruct((64, 32), jnp.float32))
