"""Training steps of the kinds that sharding is searched for: what search_time measures.

Every function of ``SEARCHED`` returns a step and its abstract arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import optax
from steps import abstract, cross_entropy, decoder, ints, rms, trained

Searched = tuple[Callable[..., Any], tuple[Any, ...]]


def training(loss: Callable[..., jax.Array], params: Any, batch: Any) -> Searched:
    """The whole step of Adam on a loss."""
    optimiser = optax.adam(1e-3)
    return trained(loss, optimiser), (params, jax.eval_shape(optimiser.init, params), batch)


def mlp(layers: int = 4, rows: int = 16384, width: int = 2048, hidden: int = 8192) -> Searched:
    """A plain network of wide layers on many rows."""

    def loss(params: Any, batch: Any) -> jax.Array:
        x = batch["x"]
        for w in params:
            x = x + jax.nn.gelu(x @ w["up"]) @ w["down"]
        return jnp.mean((x - batch["y"]) ** 2)

    params = abstract([{"up": (width, hidden), "down": (hidden, width)}] * layers)
    return training(loss, params, abstract({"x": (rows, width), "y": (rows, width)}))


def wide_mlp() -> Searched:
    """Few rows, huge weights: what data parallelism is wrong for."""
    return mlp(layers=2, rows=512, width=8192, hidden=32768)


def attention(x: jax.Array, w: Any) -> jax.Array:
    """Causal attention with a head dim in its weights."""
    q, k, v = (jnp.einsum("btm,mnd->btnd", x, w[name]) for name in "qkv")
    scores = jnp.einsum("btnd,bsnd->bnts", q, k) * q.shape[-1] ** -0.5
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e30)
    return jnp.einsum("bnts,bsnd,ndm->btm", jax.nn.softmax(scores), v, w["o"])


def switched(x: jax.Array, w: Any, capacity: int) -> jax.Array:
    """A layer of experts, each token sent to the best one while it has room; ``x`` is groups, tokens, model."""
    experts = w["router"].shape[-1]
    gates = jax.nn.softmax(x @ w["router"])
    mask = jax.nn.one_hot(jnp.argmax(gates, -1), experts)
    place = (jnp.cumsum(mask, 1) * mask - 1).astype(jnp.int32)
    slots = jax.nn.one_hot(place, capacity, dtype=x.dtype)
    sent = mw.tag(jnp.einsum("gsec,gsm->egcm", slots, x), "moe/dispatched")
    hidden = jax.nn.relu(jnp.einsum("egcm,emh->egch", sent, w["wi"]))
    back = mw.tag(jnp.einsum("egch,ehm->egcm", hidden, w["wo"]), "moe/combined")
    return jnp.einsum("gsec,egcm->gsm", slots * (gates * mask)[..., None], back)


def expert_shapes(width: int, hidden: int, experts: int) -> dict[str, tuple[int, ...]]:
    return {"router": (width, experts), "wi": (experts, width, hidden), "wo": (experts, hidden, width)}


def moe_layer(groups: int = 32, tokens: int = 1024, experts: int = 32) -> Searched:
    """One layer of experts alone."""
    width, hidden = 1024, 4096
    capacity = 2 * tokens // experts

    def loss(params: Any, x: jax.Array) -> jax.Array:
        return jnp.mean(switched(x, params, capacity) ** 2)

    return training(loss, abstract(expert_shapes(width, hidden, experts)), abstract((groups, tokens, width)))


def language_model(layers: int = 2, experts: int = 0, batch: int = 64, length: int = 1024) -> Searched:
    """A decoder in float32, its layers unrolled; every other one with experts where there are some."""
    width, hidden, heads, vocabulary = 1024, 4096, 16, 32768
    capacity = 2 * length // max(experts, 1)
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys("qkv", (width, heads, width // heads))
    shapes |= {"o": (heads, width // heads, width), "norm1": (width,), "norm2": (width,)}
    dense = shapes | {"up": (width, hidden), "down": (hidden, width)}
    sparse = shapes | expert_shapes(width, hidden, experts)

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        x = params["embedding"][tokens]
        for w in params["layers"]:
            x = x + attention(rms(x, w["norm1"]), w)
            h = rms(x, w["norm2"])
            x = x + (switched(h, w, capacity) if "router" in w else jax.nn.relu(h @ w["up"]) @ w["down"])
        return cross_entropy(x @ params["embedding"].T, tokens)

    kinds = [sparse if experts and i % 2 else dense for i in range(layers)]
    return training(loss, abstract({"embedding": (vocabulary, width), "layers": kinds}), ints(batch, length))


def conv_net(rows: int = 128, edge: int = 256) -> Searched:
    """Convolutions of growing width and shrinking images, then a linear layer."""
    widths = (3, 64, 128, 256, 512)

    def loss(params: Any, batch: Any) -> jax.Array:
        x = batch["image"]
        for w in params["convolutions"]:
            x = jax.lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
            x = jax.nn.relu(x)
        logits = x.mean((1, 2)) @ params["head"]
        return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()

    kernels = [(3, 3, a, b) for a, b in pairwise(widths)]
    batch = {"image": abstract((rows, edge, edge, 3)), "label": ints(rows)}
    return training(loss, abstract({"convolutions": kernels, "head": (widths[-1], 1024)}), batch)


def scanned(layers: int, unrolled: bool = False) -> Searched:
    """A decoder of today, its layers in a scan or one after the other."""
    found = decoder(layers=layers, unrolled=unrolled)
    return found.step, found.args


SEARCHED: dict[str, Callable[[], Searched]] = {
    "mlp": mlp,
    "wide-mlp": wide_mlp,
    "moe-layer": moe_layer,
    "dense-lm": language_model,
    "moe-lm": functools.partial(language_model, experts=32, batch=32),
    "conv-net": conv_net,
    "mlp-8960": functools.partial(mlp, rows=35840, width=2240, hidden=8960),
    "decoder-4": functools.partial(scanned, 4),
    "decoder-96": functools.partial(scanned, 96),
    "decoder-36": functools.partial(scanned, 36),
    "decoder-36-unrolled": functools.partial(scanned, 36, unrolled=True),
}
