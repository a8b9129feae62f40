"""Whole training steps on one GPU, of the kinds that plans are made for: what estimates are judged by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from steps import STEPS

from .case import Case, abstract

BF16, F32 = jnp.bfloat16, jnp.float32
Loss = Callable[..., jax.Array]


def whole() -> Iterator[Case]:
    """Every one of them."""
    for name, make in STEPS.items():
        made = make()
        high = {"ranking": 1_048_576, "vision": 1000, "mixture": 16384}.get(name, 32768)
        yield Case(name=name, step=made.step, args=made.args, high=high, donated=0 if name == "mixture" else 2)
    yield _mlp("mlp f32", 2048, 8192, 4096)
    yield _mlp("mlp bf16 gated, 4 layers", 2048, 5632, 8192, layers=4, dtype=BF16, gated=True)
    yield _mlp("wide mlp f32", 8192, 32768, 512)
    yield _mlp("small mlp f32", 512, 1024, 256, layers=6)
    yield _moe_layer("moe layer f32", F32)
    yield _moe_layer("moe layer bf16", BF16)
    yield _lm("lm f32, 2 layers", 64, 512, 2)
    yield _lm("lm f32, 6 layers, short", 16, 128, 6, vocabulary=8192, dim=512)
    yield _lm("lm bf16, 8 layers scanned", 16, 1024, 8, dtype=BF16, scanned=True)
    yield _lm("lm bf16, 2 layers, long", 4, 4096, 2, dtype=BF16)
    yield _lm("lm bf16, 12 layers, tiny", 8, 128, 12, dtype=BF16, vocabulary=4096, dim=256)
    yield _lm("lm f32, experts", 64, 512, 1, experts=32)
    yield _lm("lm bf16, experts", 32, 512, 2, dtype=BF16, experts=16)
    yield _convolutions("convolutions f32", 32, 256, 64, 4, F32)
    yield _convolutions("convolutions bf16", 64, 56, 256, 6, BF16)


def _adam(name: str, loss: Loss, shapes: Any, batch: Any, high: int = 0) -> Case:
    params = jax.tree.map(lambda s: abstract(s, F32), shapes, is_leaf=lambda s: isinstance(s, tuple))
    adam = optax.adam(1e-5)

    def step(params: Any, opt: Any, batch: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(params, batch)
        updates, opt = adam.update(gradients, opt, params)
        return optax.apply_updates(params, updates), opt, value

    fast = jax.jit(step, donate_argnums=(0, 1))
    return Case(name=name, step=fast, args=(params, jax.eval_shape(adam.init, params), batch), high=high, donated=2)


def _gradients(name: str, loss: Loss, params: Any, batch: Any) -> Case:
    return Case(name=name, step=lambda params, batch: jax.value_and_grad(loss)(params, batch), args=(params, batch))


def _mlp(
    name: str, dim: int, hidden: int, rows: int, layers: int = 1, dtype: Any = F32, *, gated: bool = False
) -> Case:
    def loss(params: Any, x: jax.Array) -> jax.Array:
        for w in jax.tree.map(lambda a: a.astype(dtype), params):
            y = jax.nn.relu(x.astype(dtype) @ w["wi"])
            y = y * (x.astype(dtype) @ w["wg"]) if gated else y
            x = x + (y @ w["wo"]).astype(F32)
        return jnp.mean(x**2)

    one = {"wi": (dim, hidden), "wo": (hidden, dim)} | ({"wg": (dim, hidden)} if gated else {})
    return _adam(name, loss, [one] * layers, abstract((rows, dim), F32))


def _norm(x: jax.Array, scale: jax.Array) -> jax.Array:
    y = x.astype(F32) - x.astype(F32).mean(-1, keepdims=True)
    return (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + 1e-6) * scale).astype(x.dtype)


def _attention(w: Any, x: jax.Array) -> jax.Array:
    q, k, v = (jnp.einsum("btm,mnd->btnd", x, w[n]) for n in "qkv")
    scores = jnp.einsum("btnd,bsnd->bnts", q, k).astype(F32) / np.sqrt(q.shape[-1])
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    mixed = jnp.einsum("bnts,bsnd->btnd", jax.nn.softmax(scores).astype(x.dtype), v)
    return jnp.einsum("btnd,ndm->btm", mixed, w["o"])


def _experts(w: Any, x: jax.Array, groups: int) -> jax.Array:
    """GShard's layer: two choices, one-hot masks (Lepikhin et al. 2020, Figure 9)."""
    B, T, M = x.shape
    x, E = x.reshape(groups, -1, M), w["wg"].shape[-1]
    S = x.shape[1]
    C = 2 * S // E
    gates = jax.nn.softmax(jnp.einsum("gsm,me->gse", x, w["wg"]).astype(F32))
    first = jax.nn.one_hot(jnp.argmax(gates, -1), E)
    second = jax.nn.one_hot(jnp.argmax(gates * (1 - first), -1), E)
    place = (jnp.cumsum(first, 1) - 1) * first
    later = (jnp.cumsum(second, 1) - 1 + first.sum(1, keepdims=True)) * second
    combine = sum(
        (gates * mask * (at < C))[..., None] * jax.nn.one_hot((at * mask).sum(-1).astype(jnp.int32), C)[:, :, None]
        for mask, at in ((first, place), (second, later))
    )
    sent = jnp.einsum("gsec,gsm->egcm", (combine > 0).astype(x.dtype), x)
    made = jnp.einsum("egch,ehm->egcm", jax.nn.relu(jnp.einsum("egcm,emh->egch", sent, w["wi"])), w["wo"])
    return jnp.einsum("gsec,egcm->gsm", combine.astype(x.dtype), made).reshape(B, T, M)


def _moe_layer(name: str, dtype: Any) -> Case:
    D, S, M, H, E = 32, 1024, 1024, 4096, 32

    def loss(params: Any, x: jax.Array) -> jax.Array:
        w = jax.tree.map(lambda a: a.astype(dtype), params)
        return jnp.mean(_experts(w, x, D).astype(F32) ** 2)

    shapes = {"wg": (M, E), "wi": (E, M, H), "wo": (E, H, M)}
    params = {n: abstract(s, F32) for n, s in shapes.items()}
    return _gradients(name, loss, params, abstract((D, S, M), dtype))


def _lm(
    name: str, rows: int, length: int, layers: int, *, dtype: Any = F32, vocabulary: int = 32000, dim: int = 1024,
    experts: int = 0, scanned: bool = False,
) -> Case:  # fmt: skip
    hidden, heads = 4 * dim, dim // 64

    def block(x: jax.Array, w: Any) -> jax.Array:
        w = jax.tree.map(lambda a: a.astype(dtype), w)
        x = x + _attention(w, _norm(x, w["norm1"]))
        x = x + jax.nn.gelu(_norm(x, w["norm2"]) @ w["wi"]) @ w["wo"]
        return x + _experts(w["moe"], _norm(x, w["norm3"]), rows) if experts else x

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embedding"].astype(dtype)[tokens]
        if scanned:
            x = jax.lax.scan(lambda x, w: (block(x, w), None), x, params["layers"])[0]
        else:
            for w in params["layers"]:
                x = block(x, w)
        logits = jnp.einsum("btm,vm->btv", x, params["embedding"].astype(dtype)).astype(F32)
        return optax.softmax_cross_entropy_with_integer_labels(logits[:, :-1], tokens[:, 1:]).mean()

    one: dict[str, Any] = dict.fromkeys("qkv", (dim, heads, 64)) | {"o": (heads, 64, dim)}
    one |= {"wi": (dim, hidden), "wo": (hidden, dim), "norm1": (dim,), "norm2": (dim,)}
    if experts:
        one |= {"moe": {"wg": (dim, experts), "wi": (experts, dim, hidden), "wo": (experts, hidden, dim)}}
        one |= {"norm3": (dim,)}
    many = {n: (layers, *s) for n, s in one.items()} if scanned else [one] * layers
    tokens = abstract((rows, length), jnp.int32)
    return _adam(name, loss, {"embedding": (vocabulary, dim), "layers": many}, tokens, high=vocabulary)


def _convolutions(name: str, images: int, edge: int, features: int, layers: int, dtype: Any) -> Case:
    def loss(params: Any, x: jax.Array) -> jax.Array:
        for k in params:
            x = jax.lax.conv_general_dilated(
                x, k.astype(dtype), (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = jax.nn.relu(x)
        return jnp.mean(x.astype(F32) ** 2)

    params = [abstract((3, 3, features, features), F32)] * layers
    return _gradients(name, loss, params, abstract((images, edge, edge, features), dtype))
