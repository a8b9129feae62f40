"""Training steps as users write them, each with the layouts that teams use for it: what the benchmarks measure on.

Every function of ``STEPS`` returns a step, its abstract arguments and its layouts: ``tensors:`` of a plan by name, on a
mesh of axes ``x`` and ``y``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import meshwright as mw
import optax

Shapes = Any


class Case(NamedTuple):
    """A step, its abstract arguments, and ``tensors:`` of a plan by the layout's name."""

    step: Callable[..., Any]
    args: tuple[Any, ...]
    layouts: dict[str, str]


def abstract(tree: Any, dtype: Any = jnp.float32) -> Any:
    """Shapes as abstract arrays."""
    return jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, dtype), tree, is_leaf=lambda s: isinstance(s, tuple))


def ints(*shape: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def trained(loss: Callable[..., jax.Array], optimiser: optax.GradientTransformation) -> Callable[..., Any]:
    """A whole training step: loss, gradient, optimiser."""

    def step(params: Any, opt: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, batch)
        updates, opt = optimiser.update(gradients, opt, params)
        return optax.apply_updates(params, updates), opt, value

    return step


def case(
    loss: Callable[..., jax.Array],
    params: Any,
    batch: Any,
    layouts: dict[str, str],
    optimiser: optax.GradientTransformation | None = None,
    donate: bool = True,
) -> Case:
    optimiser = optimiser or optax.adamw(1e-3)
    step = jax.jit(trained(loss, optimiser), donate_argnums=(0, 1) if donate else ())
    return Case(step, (params, jax.eval_shape(optimiser.init, params), batch), layouts)


def rms(x: jax.Array, scale: jax.Array) -> jax.Array:
    y = x.astype(jnp.float32)
    return (y * jax.lax.rsqrt(jnp.mean(y * y, -1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def rotary(x: jax.Array) -> jax.Array:
    half = x.shape[-1] // 2
    angles = jnp.arange(x.shape[1])[:, None] * 10000.0 ** (-jnp.arange(half) / half)
    sin, cos = (f(angles)[None, :, None].astype(x.dtype) for f in (jnp.sin, jnp.cos))
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], -1)


def cross_entropy(logits: jax.Array, tokens: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1].astype(jnp.float32), tokens[:, 1:]).mean()


def decoder(layers: int = 4, unrolled: bool = False, remat: bool = True, dtype: Any = jnp.bfloat16) -> Case:
    """A decoder of today: grouped queries, rotary positions, gated feed-forward layers, bfloat16 on float32 weights."""
    M, H, N, K, D, V, B, T = 1024, 2816, 16, 4, 64, 32768, 64, 512

    def block(x: jax.Array, w: Any) -> jax.Array:
        w = jax.tree.map(lambda a: a.astype(dtype), w)
        h = rms(x, w["norm1"])
        q = rotary(jnp.einsum("btm,mnd->btnd", h, w["q"])).reshape(*x.shape[:2], K, N // K, D)
        k = rotary(jnp.einsum("btm,mkd->btkd", h, w["k"]))
        v = jnp.einsum("btm,mkd->btkd", h, w["v"])
        scores = jnp.einsum("btkgd,bskd->bkgts", q, k).astype(jnp.float32) * D**-0.5
        scores = jnp.where(jnp.tril(jnp.ones((T, T), bool)), scores, -1e30)
        mixed = jnp.einsum("bkgts,bskd->btkgd", jax.nn.softmax(scores).astype(dtype), v).reshape(*x.shape[:2], N, D)
        x = x + jnp.einsum("btnd,ndm->btm", mixed, w["o"])
        h = rms(x, w["norm2"])
        return x + (jax.nn.silu(h @ w["gate"]) * (h @ w["up"])) @ w["down"]

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embedding"].astype(dtype)[tokens]
        body = jax.checkpoint(block) if remat else block
        if unrolled:
            for w in params["layers"]:
                x = body(x, w)
        else:
            x = jax.lax.scan(lambda x, w: (body(x, w), None), x, params["layers"])[0]
        logits = rms(x, params["norm"]) @ params["head"].astype(dtype)
        return cross_entropy(logits, tokens)

    one = {"q": (M, N, D), "k": (M, K, D), "v": (M, K, D), "o": (N, D, M)}
    one |= {"gate": (M, H), "up": (M, H), "down": (H, M), "norm1": (M,), "norm2": (M,)}
    many = [one] * layers if unrolled else {name: (layers, *shape) for name, shape in one.items()}
    params = abstract({"layers": many, "embedding": (V, M), "norm": (M,), "head": (M, V)})
    lead = "" if unrolled else "L "
    fsdp = f"""
      batch: B@x+y T
      params/embedding: V@x+y M
      params/head: M V@x+y
      params/layers/**/norm*: replicate
      params/layers/**/o: {lead}N D M@x+y
      params/layers/**/down: {lead}H M@x+y
      params/layers/**/[gu]*: {lead}M@x+y ...
      params/layers/**: {lead}M@x+y ...
      params/**: replicate
      opt/**: like params
      out/2: replicate"""
    mixed = f"""
      batch: B@x T
      params/embedding: V@y M@x
      params/head: M@x V@y
      params/layers/**/norm*: replicate
      params/layers/**/q: {lead}M@x N@y D
      params/layers/**/[kv]: {lead}M@x K D
      params/layers/**/o: {lead}N@y D M@x
      params/layers/**/down: {lead}H@y M@x
      params/layers/**: {lead}M@x H@y
      params/**: replicate
      opt/**: like params
      out/2: replicate"""
    data = """
      batch: B@x+y T
      params/**: replicate
      opt/**: replicate
      out/2: replicate"""
    return case(
        loss,
        params,
        ints(B, T),
        {"data": data, "fsdp": fsdp, "fsdp+tensor": mixed, "tensor": mixed.replace("M@x", "M")},
    )


def mixture(layers: int = 2) -> Case:
    """Switch layers (top-1, capacity 1.25) between attention, unrolled, SGD with momentum, nothing donated."""
    M, H, N, D, E, V, B, T = 512, 2048, 8, 64, 32, 16384, 64, 512
    C = T * 5 // (4 * E)

    def switch(x: jax.Array, w: Any) -> jax.Array:
        gates = jax.nn.softmax(x.astype(jnp.float32) @ w["router"])
        mask = jax.nn.one_hot(jnp.argmax(gates, -1), E)
        place = jnp.cumsum(mask, 1) * mask - 1
        slots = jax.nn.one_hot(place.astype(jnp.int32), C, dtype=x.dtype)
        sent = mw.tag(jnp.einsum("gsec,gsm->egcm", slots, x), "moe/dispatched")
        done = jnp.einsum("egch,ehm->egcm", jax.nn.gelu(jnp.einsum("egcm,emh->egch", sent, w["wi"])), w["wo"])
        back = mw.tag(done, "moe/combined")
        weights = slots * (gates * mask)[..., None].astype(x.dtype)
        return jnp.einsum("gsec,egcm->gsm", weights, back)

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embedding"][tokens]
        for w in params["layers"]:
            h = rms(x, w["norm1"])
            q, k, v = (jnp.einsum("btm,mnd->btnd", h, w[n]) for n in "qkv")
            a = jax.nn.softmax(jnp.einsum("btnd,bsnd->bnts", q, k) * D**-0.5)
            x = x + jnp.einsum("bnts,bsnd,ndm->btm", a, v, w["o"])
            x = x + switch(rms(x, w["norm2"]), w)
        return cross_entropy(x @ params["embedding"].T, tokens)

    one = {"q": (M, N, D), "k": (M, N, D), "v": (M, N, D), "o": (N, D, M), "norm1": (M,), "norm2": (M,)}
    one |= {"router": (M, E), "wi": (E, M, H), "wo": (E, H, M)}
    params = abstract({"layers": [one] * layers, "embedding": (V, M)})
    experts = """
      batch: B@x+y T
      params/layers/**/w[io]: E@x+y ...
      params/**: replicate
      opt/**: like params
      acts/moe/dispatched: E@x+y G C M
      acts/moe/combined: E G@x+y C M
      out/2: replicate"""
    both = """
      batch: B@x+y T
      params/layers/**/wi: E@x M H@y
      params/layers/**/wo: E@x H@y M
      params/embedding: V@x+y M
      params/**: replicate
      opt/**: like params
      acts/moe/dispatched: E@x G@y C M
      acts/moe/combined: E G@x+y C M
      out/2: replicate"""
    data = """
      batch: B@x+y T
      params/**: replicate
      opt/**: replicate
      acts/**: infer
      out/2: replicate"""
    layouts = {"data": data, "experts": experts, "experts+tensor": both}
    return case(loss, params, ints(B, T), layouts, optax.sgd(1e-2, momentum=0.9), donate=False)


def vision(layers: int = 2) -> Case:
    """A vision Transformer: patches by a convolution, layer norms, GELU, plain Adam."""
    M, H, N, D, B, S, P = 768, 3072, 12, 64, 256, 224, 16

    def norm(x: jax.Array, scale: jax.Array) -> jax.Array:
        x = x - x.mean(-1, keepdims=True)
        return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-6) * scale

    def loss(params: Any, batch: Any) -> jax.Array:
        x = jax.lax.conv_general_dilated(
            batch["image"], params["patch"], (P, P), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = x.reshape(B, -1, M) + params["position"]
        for w in params["layers"]:
            h = norm(x, w["norm1"])
            q, k, v = jnp.moveaxis(jnp.einsum("btm,mcnd->btcnd", h, w["qkv"]), 2, 0)
            a = jax.nn.softmax(jnp.einsum("btnd,bsnd->bnts", q, k) * D**-0.5)
            x = x + jnp.einsum("bntd,ndm->btm", jnp.einsum("bnts,bsnd->bntd", a, v), w["o"])
            x = x + jax.nn.gelu(norm(x, w["norm2"]) @ w["wi"] + w["bias"]) @ w["wo"]
        logits = x.mean(1) @ params["head"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    one = {"qkv": (M, 3, N, D), "o": (N, D, M), "wi": (M, H), "bias": (H,), "wo": (H, M), "norm1": (M,), "norm2": (M,)}
    shapes = {"layers": [one] * layers, "patch": (P, P, 3, M), "position": ((S // P) ** 2, M), "head": (M, 1024)}
    batch = {"image": abstract((B, S, S, 3)), "label": ints(B)}
    data = """
      batch/**: B@x+y ...
      params/**: replicate
      opt/**: replicate
      out/2: replicate"""
    tensor = """
      batch/**: B@x ...
      params/layers/**/qkv: M Q N@y D
      params/layers/**/o: N@y D M
      params/layers/**/wi: M H@y
      params/layers/**/bias: H@y
      params/layers/**/wo: H@y M
      params/**: replicate
      opt/**: like params
      out/2: replicate"""
    return case(loss, abstract(shapes), batch, {"data": data, "tensor": tensor}, optax.adam(1e-3))


def ranking() -> Case:
    """A recommender: large embedding tables looked up by row, a small dense tower, Adagrad."""
    R, D, F, B = 1_048_576, 64, 8, 16384

    def loss(params: Any, batch: Any) -> jax.Array:
        rows = [table[batch["ids"][:, i]] for i, table in enumerate(params["tables"])]
        x = jnp.concatenate([*rows, batch["dense"]], -1)
        for w in params["tower"]:
            x = jax.nn.relu(x @ w)
        return jnp.mean(optax.sigmoid_binary_cross_entropy(x.sum(-1), batch["label"]))

    shapes = {"tables": [(R, D)] * F, "tower": [(F * D + 64, 1024), (1024, 512), (512, 256)]}
    batch = {"ids": ints(B, F), "dense": abstract((B, 64)), "label": abstract((B,))}
    rows = """
      batch/**: B@x+y ...
      params/tables/*: R@x+y D
      params/**: replicate
      opt/**: like params
      out/2: replicate"""
    columns = rows.replace("R@x+y D", "R D@x+y")
    return case(loss, abstract(shapes), batch, {"rows": rows, "columns": columns}, optax.adagrad(1e-2))


STEPS: dict[str, Callable[[], Case]] = {
    "decoder": decoder,
    "decoder-unrolled": lambda: decoder(layers=2, unrolled=True, remat=False),
    "decoder-float32": lambda: decoder(layers=3, dtype=jnp.float32, remat=False),
    "mixture": mixture,
    "vision": vision,
    "ranking": ranking,
}


def plan(layout: str, topology: str, mesh: dict[str, int]) -> mw.Plan:
    """The plan with this ``tensors:`` block."""
    rows = "\n".join(f"  {line.strip()}" for line in layout.strip().splitlines())
    axes = ", ".join(f"{axis}: {length}" for axis, length in mesh.items())
    return mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {{{axes}}}\ntensors:\n{rows}\n")
