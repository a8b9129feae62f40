"""Products kept apart on TPUs: where a barrier stands, and that nothing computed changes."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun
from meshwright.backends.jax.products import with_products_apart
from meshwright.backends.jax.trace import equations

X, W, V = jnp.ones((32, 16)), jnp.full((16, 24), 0.5), jnp.full((24, 8), 0.25)


def barriers(function, *args) -> int:
    closed = with_products_apart(jax.make_jaxpr(function)(*args))
    return sum(each.primitive.name == "optimization_barrier" for each in equations(closed.jaxpr))


def chained(x, w, v):
    return (x @ w) @ v


def activated(x, w, v):
    return jax.nn.relu(x @ w + 1.0) @ v


def moved(x, w, v):
    return (x @ w).T.reshape(24, 32).T @ v


def scanned(x, w, v):
    return jax.lax.scan(lambda carry, _: (carry, activated(carry, w, v)), x, None, length=3)[1]


@pytest.mark.parametrize("function", [chained, activated, moved, scanned])
def test_a_product_that_another_alone_reads_ends_at_a_barrier(function):
    assert barriers(function, X, W, V) == 1


def loss(w, x, v):
    return jnp.sum(jnp.tanh(x @ w) @ v)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w, v: ((h := x @ w) @ v, h),  # a result of the step
        lambda x, w, v: ((h := x @ w) @ v, h.sum()),  # something else reads it
        lambda x, w, v: jax.nn.softmax(x @ w) @ v,  # sums in between
        lambda x, w, v: jnp.exp(x) @ w,  # no product before
        lambda x, w, v: (
            (x @ w[:, :1] + w[:1].T.sum() * jnp.ones((32, 24))) @ v
        ),  # spread: no longer the product's shape
    ],
)
def test_others_have_none(function):
    assert barriers(function, X, W, V) == 0


@pytest.mark.parametrize("function", [chained, activated, moved, scanned, jax.grad(loss)])
def test_nothing_that_is_computed_changes(function):
    args = (X, W, V) if function is not None and getattr(function, "__name__", "") != "loss" else (W, X, V)
    closed = jax.make_jaxpr(function)(*args)
    for one, other in zip(jaxpr_as_fun(closed)(*args), jaxpr_as_fun(with_products_apart(closed))(*args), strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_step_without_such_products_is_left_as_it_is():
    closed = jax.make_jaxpr(lambda x, w: jnp.exp(x @ w))(X, W)
    assert with_products_apart(closed) is closed
