"""Small models drawn at random, with numbers to run on: products, norms, attention, experts, loops, shared weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
from hypothesis import strategies as st

Layer = Callable[[Any, jax.Array], jax.Array]
WIDTH, HEADS, EXPERTS = 16, 4, 4


def dense(own: Any, x: jax.Array) -> jax.Array:
    return jnp.tanh(x @ own["w"] + own["b"])


def residual(own: Any, x: jax.Array) -> jax.Array:
    return x + jax.nn.relu(x @ own["wi"]) @ own["wo"]


def normed(own: Any, x: jax.Array) -> jax.Array:
    centred = x - jnp.mean(x, -1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.mean(centred**2, -1, keepdims=True) + 1e-3) * own["scale"]


def attended(own: Any, x: jax.Array) -> jax.Array:
    q, k, v = (jnp.einsum("btd,dhk->bthk", x, own[name]) for name in "qkv")
    scores = jax.nn.softmax(jnp.einsum("bthk,bshk->bhts", q, k))
    return x + jnp.einsum("bthk,hkd->btd", jnp.einsum("bhts,bshk->bthk", scores, v), own["o"])


def expert(own: Any, x: jax.Array) -> jax.Array:
    gates = jax.nn.softmax(x @ own["router"])
    made = jnp.einsum("btd,edh->bteh", x, own["wi"])
    return x + jnp.einsum("bte,bteh,ehd->btd", gates, jnp.tanh(made), own["wo"])


def scanned(own: Any, x: jax.Array) -> jax.Array:
    def turn(x: jax.Array, w: jax.Array) -> tuple[jax.Array, None]:
        return x + jnp.sin(x @ w), None

    return jax.lax.scan(turn, x, own["w"])[0]


def remembered(own: Any, x: jax.Array) -> jax.Array:
    return mw.tag(mw.remat(residual)(own, x), "stream")


def turned(own: Any, x: jax.Array) -> jax.Array:
    """Mixes positions, not features."""
    return x + jnp.swapaxes(jnp.swapaxes(x, 1, 2) @ own["mix"], 1, 2)


LAYERS: dict[str, Layer] = {
    each.__name__: each for each in (dense, residual, normed, attended, expert, scanned, remembered, turned)
}


@dataclass(frozen=True)
class Model:
    """The layers' names, sizes, whether layers of one name share their weights, and whether each position foretells the
    next.
    """

    layers: tuple[str, ...]
    batch: int
    length: int
    hidden: int
    shared: bool
    momentum: bool
    foretells: bool = False

    def init(self, seed: int) -> tuple[Any, ...]:
        """Concrete arguments of the step."""
        keys = iter(jax.random.split(jax.random.key(seed), 100))

        def draw(*shape: int) -> jax.Array:
            return 0.3 * jax.random.normal(next(keys), shape)

        params = {self._place(i): self._weights(name, draw) for i, name in enumerate(self.layers)}
        batch = {"x": draw(self.batch, self.length, WIDTH), "y": draw(self.batch, self.length, WIDTH)}
        return (params, jax.tree.map(jnp.zeros_like, params), batch) if self.momentum else (params, batch)

    def step(self, params: Any, *rest: Any) -> Any:
        """One step of training."""
        *state, batch = rest
        value, gradient = jax.value_and_grad(self._loss)(params, batch)
        if not state:
            return jax.tree.map(lambda w, g: w - 0.1 * g, params, gradient), value
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, state[0], gradient)
        return jax.tree.map(lambda w, m: w - 0.1 * m, params, momentum), momentum, value

    def _loss(self, params: Any, batch: Any) -> jax.Array:
        x = batch["x"]
        for i, name in enumerate(self.layers):
            x = LAYERS[name](params[self._place(i)], x)
        if self.foretells:
            return jnp.mean((x[:, :-1] - batch["y"][:, 1:]) ** 2)
        return jnp.mean((x - batch["y"]) ** 2)

    def _place(self, index: int) -> str:
        name = self.layers[index]
        return name if self.shared else f"{name}{index}"

    def _weights(self, name: str, draw: Callable[..., jax.Array]) -> dict[str, jax.Array]:
        own, hidden = WIDTH // HEADS, self.hidden
        if name == "dense":
            return {"w": draw(WIDTH, WIDTH), "b": draw(WIDTH)}
        if name == "normed":
            return {"scale": draw(WIDTH)}
        if name == "attended":
            return {each: draw(WIDTH, HEADS, own) for each in "qkv"} | {"o": draw(HEADS, own, WIDTH)}
        if name == "expert":
            return {
                "router": draw(WIDTH, EXPERTS),
                "wi": draw(EXPERTS, WIDTH, hidden),
                "wo": draw(EXPERTS, hidden, WIDTH),
            }
        if name == "scanned":
            return {"w": draw(3, WIDTH, WIDTH)}
        if name == "turned":
            return {"mix": draw(self.length, self.length)}
        return {"wi": draw(WIDTH, hidden), "wo": draw(hidden, WIDTH)}


@st.composite
def models(draw: st.DrawFn) -> Model:
    """A model of one to three layers. Not all of its dims divide by the number of devices."""
    return Model(
        layers=tuple(draw(st.lists(st.sampled_from(sorted(LAYERS)), min_size=1, max_size=3))),
        batch=draw(st.sampled_from([8, 16, 6, 1])),
        length=draw(st.sampled_from([8, 4, 5, 9])),
        hidden=draw(st.sampled_from([32, 64, 12, 33])),
        shared=draw(st.booleans()),
        momentum=draw(st.booleans()),
        foretells=draw(st.booleans()),
    )
