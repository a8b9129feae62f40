"""The layer that ``dispatch.py`` measures: everything behind the gate, with each way of dispatch, at equal routing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from meshwright.backends.jax.models.moe.dispatch import Dispatch
from meshwright.backends.jax.models.moe.dispatch.einsum import EinsumDispatch
from meshwright.backends.jax.models.moe.dispatch.index import IndexDispatch
from meshwright.backends.jax.models.moe.dispatch.sorted import SortedDispatch
from meshwright.backends.jax.models.moe.experts import FeedForward
from meshwright.backends.jax.models.moe.routing import Routing, Rules, assign


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Dims of the layer: one group of S tokens."""

    tokens: int
    experts: int = 8
    choices: int = 2
    model_dim: int = 128
    hidden_dim: int = 512
    dtype: str = "float32"

    def __str__(self) -> str:
        dims = f"S = {self.tokens}, E = {self.experts}, K = {self.choices}, M = {self.model_dim}, H = {self.hidden_dim}"
        return f"{dims}, {self.dtype}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A way of dispatch, at a factor on the slots that balanced experts would need; None without capacity."""

    dispatch: Dispatch
    factor: float | None = None
    work: FeedForward = field(default_factory=FeedForward)

    def slots(self, sizes: Sizes) -> int:
        """C."""
        balanced = sizes.choices * sizes.tokens / sizes.experts
        return sizes.tokens if self.factor is None else int(self.factor * balanced)


LAYERS = {
    "one-hot, capacity 1.0": Layer(dispatch=EinsumDispatch(), factor=1.0),
    "one-hot, capacity 2.0": Layer(dispatch=EinsumDispatch(), factor=2.0),
    "index, capacity 1.0": Layer(dispatch=IndexDispatch(), factor=1.0),
    "index, capacity 2.0": Layer(dispatch=IndexDispatch(), factor=2.0),
    "dropless, sorted": Layer(dispatch=SortedDispatch()),
}
PAIRS = (
    ("one-hot, capacity 1.0", "index, capacity 1.0"),
    ("one-hot, capacity 2.0", "index, capacity 2.0"),
)
"""Pairs that differ in the dispatch alone."""


def operations(layer: Layer, sizes: Sizes) -> float:
    """Operations of a step by the systems' formulas.

    The experts' two products and their gradients' four, 2·rows·M·H each; one-hot products two and their gradients'
    three, 2·S·E·C·M each; as many passes over S·K rows of M by index.
    """
    S, M, K = sizes.tokens, sizes.model_dim, sizes.choices
    slots = sizes.experts * layer.slots(sizes)
    moved = S * slots if isinstance(layer.dispatch, EinsumDispatch) else S * K
    return products(layer, sizes) + 10.0 * moved * M


def products(layer: Layer, sizes: Sizes) -> float:
    """Operations of a step's products of the experts alone."""
    rows = sizes.choices * sizes.tokens if layer.factor is None else sizes.experts * layer.slots(sizes)
    return 12.0 * rows * sizes.model_dim * sizes.hidden_dim


def arguments(sizes: Sizes, seed: int = 0) -> tuple[Any, jax.Array, Routing]:
    """Weights, tokens, and a routing of random gates, the same for every layer; what a factor of 1 drops it drops."""
    rng = np.random.default_rng(seed)
    M, H, E = sizes.model_dim, sizes.hidden_dim, sizes.experts
    params = {"wi": rng.normal(size=(E, M, H)) * M**-0.5, "wo": rng.normal(size=(E, H, M)) * H**-0.5}
    gates = jax.nn.softmax(jnp.float32(rng.normal(size=(1, sizes.tokens, E))), axis=-1)
    routing = jax.jit(lambda g: assign(g, Rules(choices=sizes.choices), sizes.tokens))(gates)
    x = rng.normal(size=(1, sizes.tokens, M))
    return jax.tree.map(lambda w: jnp.array(w, sizes.dtype), params), jnp.array(x, sizes.dtype), routing


def step_of(layer: Layer, sizes: Sizes) -> Callable[..., Any]:
    """What comes out for given tokens and routing, and the gradient by weights, tokens and gates."""
    dims = {"experts": sizes.experts, "capacity": layer.slots(sizes)}

    def forward(params: Any, x: jax.Array, weight: jax.Array, routing: Routing) -> jax.Array:
        kept = routing.kept & (routing.slot < layer.slots(sizes))
        prepared = layer.dispatch.prepare(routing._replace(weight=weight, kept=kept), **dims)
        said = layer.work(params, layer.dispatch.send(prepared, x, **dims), key=None)
        return layer.dispatch.combine(prepared, said)

    def step(params: Any, x: jax.Array, routing: Routing) -> Any:
        out, pull = jax.vjp(lambda p, y, w: forward(p, y, w, routing), params, x, routing.weight)
        return out, pull(out)

    return step
