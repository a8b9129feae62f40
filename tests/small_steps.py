"""Small steps of every kind that the search has to plan: their graphs are small, their tensors are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
from meshwright.backends.jax.drafts import Drafts
from meshwright.planner.program import Program, build
from meshwright.planner.topology import physical

Pair = tuple[Callable[..., Any], tuple[Any, ...]]


def shape(*sizes: int, dtype: Any = jnp.float32) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, dtype)


def trained(loss: Callable[..., jax.Array], params: Any, *batch: Any, momentum: bool = False) -> Pair:
    """The training step of a loss by gradient descent."""

    def step(params: Any, *batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, *batch)
        return jax.tree.map(lambda w, g: w - 0.01 * g, params, gradient), value

    def heavy_step(params: Any, mu: Any, *batch: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, *batch)
        mu = jax.tree.map(lambda m, g: 0.9 * m + g, mu, gradient)
        return jax.tree.map(lambda w, m: w - 0.01 * m, params, mu), mu, value

    return (heavy_step, (params, params, *batch)) if momentum else (step, (params, *batch))


def mlp(
    tokens: int = 4096,
    width: int = 1024,
    hidden: int = 4096,
    layers: int = 2,
    momentum: bool = False,
    dtype: Any = jnp.float32,
) -> Pair:
    def loss(params: Any, x: Any) -> jax.Array:
        for layer in params:
            x = x + jax.nn.relu(x @ layer["wi"]) @ layer["wo"]
        return jnp.mean(x**2)

    own = {"wi": shape(width, hidden, dtype=dtype), "wo": shape(hidden, width, dtype=dtype)}
    return trained(loss, [own] * layers, shape(tokens, width, dtype=dtype), momentum=momentum)


def attend(own: Any, x: Any) -> jax.Array:
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, own[name]) for name in "qkv")
    scores = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k) * 0.1)
    return x + jnp.einsum("bthk,hkd->btd", jnp.einsum("bhts,bshk->bthk", scores, v), own["o"])


def attention_weights(width: int, heads: int) -> dict[str, jax.ShapeDtypeStruct]:
    own = width // heads
    return {name: shape(width, heads, own) for name in "qkv"} | {"o": shape(heads, own, width)}


def attention(batch: int = 8, length: int = 512, width: int = 1024, heads: int = 8) -> Pair:
    def loss(params: Any, x: Any) -> jax.Array:
        return jnp.mean(attend(params, x) ** 2)

    return trained(loss, attention_weights(width, heads), shape(batch, length, width))


def experts(
    groups: int = 8,
    tokens: int = 512,
    width: int = 512,
    hidden: int = 2048,
    count: int = 8,
    capacity: int = 128,
    top: int = 1,
    heads: int = 0,
) -> Pair:
    """A layer of experts, each token to the ``top`` of them, as einsums over one-hot masks; behind attention of so many
    heads, if any.
    """

    def loss(params: Any, x: Any) -> jax.Array:
        x = attend(params["attention"], x) if heads else x
        gates = jax.nn.softmax(jnp.einsum("gsm,me->gse", x, params["router"]))
        chosen = jax.nn.one_hot(jax.lax.top_k(gates, top)[1], count).sum(-2)
        place = (jnp.cumsum(chosen, axis=1) - 1) * chosen
        mask = jax.nn.one_hot(place.astype(jnp.int32), capacity) * chosen[..., None]
        sent = jnp.einsum("gsec,gsm->egcm", mask, x)
        made = jnp.einsum("egch,ehm->egcm", jax.nn.relu(jnp.einsum("egcm,emh->egch", sent, params["wi"])), params["wo"])
        return jnp.mean((x + jnp.einsum("gsec,egcm->gsm", mask * gates[..., None], made)) ** 2)

    params: dict[str, Any] = {
        "router": shape(width, count),
        "wi": shape(count, width, hidden),
        "wo": shape(count, hidden, width),
    }
    params |= {"attention": attention_weights(width, heads)} if heads else {}
    return trained(loss, params, shape(groups, tokens, width))


def scanned(tokens: int = 4096, width: int = 1024, hidden: int = 4096, layers: int = 4) -> Pair:
    def loss(params: Any, x: Any) -> jax.Array:
        def layer(x: Any, own: Any) -> Any:
            return x + jax.nn.relu(x @ own["wi"]) @ own["wo"], None

        return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)

    params = {"wi": shape(layers, width, hidden), "wo": shape(layers, hidden, width)}
    return trained(loss, params, shape(tokens, width))


def convolved(batch: int = 2, size: int = 512, channels: int = 32, layers: int = 2, step: int = 1) -> Pair:
    """A net of convolutions over large images, whose windows move on by so many places."""

    def loss(params: Any, x: Any) -> jax.Array:
        for kernel in params:
            x = jax.nn.relu(
                jax.lax.conv_general_dilated(x, kernel, (step, step), "SAME", dimension_numbers=CONVOLUTION)
            )
        return jnp.mean(x**2)

    params = [shape(3, 3, channels, channels) for _ in range(layers)]
    return trained(loss, params, shape(batch, size, size, channels))


def blocks(tokens: int = 4096, width: int = 1024, hidden: int = 4096, layers: int = 3) -> Pair:
    """Layers that may be computed anew on the way back."""

    def layer(own: Any, x: Any) -> Any:
        return x + jax.nn.relu(x @ own["wi"]) @ own["wo"]

    def loss(params: Any, x: Any) -> jax.Array:
        for own in params:
            x = mw.tag(mw.remat(layer)(own, x), "stream")
        return jnp.mean(x**2)

    params = [{"wi": shape(width, hidden), "wo": shape(hidden, width)} for _ in range(layers)]
    return trained(loss, params, shape(tokens, width))


CONVOLUTION = ("NHWC", "HWIO", "NHWC")


def program_of(pair: Pair, topology: str, mesh: str, **options: Any) -> Program:
    """The program of a step on a mesh, with these ``options`` of ``build``."""
    drafts = Drafts(*pair)
    plan = mw.loads(f"meshwright: 1\ntopology: {topology}\nmesh: {mesh}\n")
    returned = {tensor.path: tensor.returns for tensor in drafts.tensors if tensor.returns}
    return build(drafts.graph(plan), plan.mesh, physical(plan.topology), returned=returned, **options)
