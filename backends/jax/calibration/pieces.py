"""Pieces of models with their gradients, as calibration compiles them: what follows what decides what is at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

F32, BF16 = jnp.float32, jnp.bfloat16


def adam(weights: Any, first: Any, second: Any, gradient: Any) -> Any:
    """A step of Adam."""
    first = 0.9 * first + 0.1 * gradient
    second = 0.99 * second + 0.01 * gradient * gradient
    return weights - 1e-3 * first / (jnp.sqrt(second) + 1e-8), first, second


def momentum(weights: Any, first: Any, gradient: Any) -> Any:
    """A step of gradient descent with momentum."""
    first = 0.9 * first + gradient
    return weights - 1e-2 * first, first


def normalise(x: Any, gain: Any) -> Any:
    """Layer normalisation."""
    return (x - x.mean(-1, keepdims=True)) * jax.lax.rsqrt(x.var(-1, keepdims=True) + 1e-6) * gain


def feed_forward(w: Any, x: Any) -> Any:
    """Normalisation, two products with a gelu between, the residual."""
    return x + jax.nn.gelu(normalise(x, w["gain"]) @ w["up"]) @ w["down"]


def gated(w: Any, x: Any) -> Any:
    """A gated unit: silu of one product times another."""
    return x + (jax.nn.silu(x @ w["gate"]) * (x @ w["up"])) @ w["down"]


def attention(w: Any, x: Any) -> Any:
    """Causal attention."""
    q, k, v = (jnp.einsum("btm,mnd->btnd", x, w[name]) for name in "qkv")
    scores = jnp.einsum("btnd,bsnd->bnts", q, k) / 8.0
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bnts,bsnd,ndm->btm", jax.nn.softmax(scores), v, w["o"])


def cross_entropy(w: Any, x: Any) -> Any:
    """The logits of tokens over a vocabulary, less their log-sum-exp."""
    logits = x @ w["table"]
    return jax.nn.logsumexp(logits, -1) - logits[..., 0]


SIZES = ((F32, 2, 512, 1024, 4096), (F32, 8, 512, 512, 2048), (F32, 4, 1024, 2048, 4096), (BF16, 16, 256, 768, 1024))


def all_pieces(make: Callable[..., Any]) -> Iterator[Any]:
    """Every piece at several sizes with its gradient, at one size alone too, as ``make(name, step, arguments)``."""
    for dtype, batch, length, width, hidden in SIZES:
        x = jax.ShapeDtypeStruct((batch, length, width), dtype)
        for name, function, weights in _blocks(width, hidden):
            held = {key: jax.ShapeDtypeStruct(shape, dtype) for key, shape in weights.items()}
            tag = f"{name} {batch}x{length}x{width}x{hidden} {jnp.dtype(dtype).name}"
            yield make(f"{tag} gradient", _gradient(function), (held, x))
            if batch == 8:
                yield make(tag, function, (held, x))


def _blocks(width: int, hidden: int) -> Iterator[tuple[str, Callable[..., Any], dict[str, tuple[int, ...]]]]:
    up, down = (width, hidden), (hidden, width)
    yield "feed forward", feed_forward, {"gain": (width,), "up": up, "down": down}
    yield "gated", gated, {"gate": up, "up": up, "down": down}
    heads = (width, width // 64, 64)
    yield "attention", attention, {"q": heads, "k": heads, "v": heads, "o": (width // 64, 64, width)}
    yield "cross entropy", cross_entropy, {"table": (width, 4 * hidden)}


def _gradient(function: Callable[..., Any]) -> Callable[..., Any]:
    """Weights after a step of descent, so that they end in memory as in training."""

    def step(w: Any, x: Any) -> Any:
        gradients = jax.grad(lambda w, x: jnp.mean(function(w, x).astype(F32) ** 2), argnums=(0, 1))(w, x)
        return jax.tree.map(lambda each, change: each - change.astype(each.dtype), w, gradients[0]), gradients[1]

    return step
