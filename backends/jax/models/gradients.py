"""Gradients in the activations' dtype: with bfloat16 activations they take half the memory of float32 weights.

JAX gives a gradient the dtype of what is differentiated. So a weight travels with a *carrier* of the wanted dtype that
has no value of its own; what is differentiated is the carrier, and the weight's gradient is cast to it where it
arises, inside the scan. The 60-layer member, with 7.4 GB of weights a core, would not fit in a v3 core otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from .parameters import Params


class Carried(NamedTuple):
    """A weight and the carrier of its gradient: the same shape, another dtype."""

    weight: jax.Array
    carrier: jax.Array


def gradients_in(
    dtype: jnp.dtype, loss: Callable[[Params], tuple[jax.Array, Any]], params: Params
) -> tuple[Params, Any]:
    """The gradient of ``loss(params) -> (value, aux)`` in ``dtype``, and aux. ``loss`` must ``resolve`` its weights."""
    gradients: tuple[Params, Any]
    if all(p.dtype == dtype for p in jax.tree.leaves(params)):
        gradients = jax.grad(loss, has_aux=True)(params)
        return gradients
    carriers = jax.tree.map(lambda p: jnp.zeros(p.shape, dtype), params)
    gradients = jax.grad(lambda c: loss(jax.tree.map(Carried, params, c)), has_aux=True)(carriers)
    return gradients


def resolve(params: Params) -> Params:
    """The weights themselves; gradients that come back to them go to their carriers."""
    weights: Params = jax.tree.map(lambda p: _weight(*p) if _is_carried(p) else p, params, is_leaf=_is_carried)
    return weights


def _is_carried(value: Any) -> bool:
    return isinstance(value, Carried)


@jax.custom_vjp
def _weight(weight: jax.Array, carrier: jax.Array) -> jax.Array:
    return weight


def _weight_forward(weight: jax.Array, carrier: jax.Array) -> tuple[jax.Array, jax.Array]:
    return weight, jnp.zeros((), carrier.dtype)  # a residual holds arrays alone: this one stands for a dtype


def _weight_backward(like: jax.Array, gradient: jax.Array) -> tuple[None, jax.Array]:
    return None, gradient.astype(like.dtype)


_weight.defvjp(_weight_forward, _weight_backward)
