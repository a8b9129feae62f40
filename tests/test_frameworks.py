"""Models of the frameworks that people use are pytrees: plans apply to their steps as to any other."""

import equinox as eqx
import flax.linen as nn
import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import optax
import pytest
from flax import nnx

TX = optax.adamw(1e-2)
X = jax.random.normal(jax.random.key(1), (16, 8))
Y = jax.random.normal(jax.random.key(2), (16, 4))


def train_step(apply):
    """The same step for every framework: ``apply(params, x)`` is the model."""

    def step(params, opt, batch):
        def loss(params):
            return ((apply(params, batch["x"]) - batch["y"]) ** 2).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt = TX.update(grads, opt, params)
        return optax.apply_updates(params, updates), opt, {"loss": value}

    return step


def plain():
    params = {"wi": jax.random.normal(jax.random.key(0), (8, 32)), "wo": jnp.ones((32, 4)) / 32}
    return params, lambda p, x: mw.tag(jax.nn.relu(x @ p["wi"]), "hidden") @ p["wo"], ("params/wi", "params/wo")


class Linen(nn.Module):
    @nn.compact
    def __call__(self, x):
        hidden = mw.tag(nn.relu(nn.Dense(32)(x)), "hidden")
        return nn.Dense(4)(hidden)


def linen():
    model = Linen()
    params = model.init(jax.random.key(0), X)
    return params, model.apply, ("params/params/Dense_0/kernel", "params/params/Dense_1/kernel")


class Nnx(nnx.Module):
    def __init__(self, rngs):
        self.inner, self.outer = nnx.Linear(8, 32, rngs=rngs), nnx.Linear(32, 4, rngs=rngs)

    def __call__(self, x):
        return self.outer(mw.tag(nnx.relu(self.inner(x)), "hidden"))


def flax_nnx():
    graph, params = nnx.split(Nnx(nnx.Rngs(0)))
    return params, lambda p, x: nnx.merge(graph, p)(x), ("params/inner/kernel/**", "params/outer/kernel/**")


class Equinox(eqx.Module):
    inner: eqx.nn.Linear
    outer: eqx.nn.Linear

    def __call__(self, x):
        return self.outer(mw.tag(jax.nn.relu(self.inner(x)), "hidden"))


def equinox():
    a, b = jax.random.split(jax.random.key(0))
    model = Equinox(eqx.nn.Linear(8, 32, key=a), eqx.nn.Linear(32, 4, key=b))
    params, static = eqx.partition(model, eqx.is_array)
    return params, lambda p, x: jax.vmap(eqx.combine(p, static))(x), ("params/inner/weight", "params/outer/weight")


def plan(model, inner, outer):
    # Equinox keeps weights as (out, in); the others as (in, out).
    wi, wo = ("H@model D", "O H@model") if model is equinox else ("D H@model", "H@model O")
    return mw.loads(
        f"""
meshwright: 1
topology: cpu:8
mesh: {{data: 4, model: 2}}
tensors:
  {inner}: {wi}
  {outer}: {wo}
  params/**: replicate
  opt/**: like params
  batch/**: B@data ...
  acts/hidden: B@data H@model
"""
        if model is not plain
        else f"""
meshwright: 1
topology: cpu:8
mesh: {{data: 4, model: 2}}
tensors:
  {inner}: {wi}
  {outer}: {wo}
  opt/**: like params
  batch/**: B@data ...
  acts/hidden: B@data H@model
"""
    )


@pytest.mark.parametrize("model", [plain, linen, flax_nnx, equinox], ids=lambda m: m.__name__)
def test_a_planned_step_equals_the_plain_one(model):
    params, apply, (inner, outer) = model()
    args = (params, TX.init(params), {"x": X, "y": Y})
    step = train_step(apply)
    written = plan(model, inner, outer)
    fast = mw.apply(written, step, args)
    placed = mw.place(written, args[:2], step, args)
    out = fast(*placed, args[2])
    for a, w in zip(jax.tree.leaves(out), jax.tree.leaves(jax.jit(step)(*args)), strict=True):
        np.testing.assert_allclose(a, w, rtol=1e-5, atol=1e-6)
    split = [leaf for leaf in jax.tree.leaves(out[0]) if not leaf.sharding.is_fully_replicated]
    assert len(split) == 2
    moments = [leaf for leaf in jax.tree.leaves(out[1]) if not leaf.sharding.is_fully_replicated]
    assert len(moments) == 4  # Adam's two for each weight, laid out like it
    assert jax.tree.structure(out[0]) == jax.tree.structure(params)  # type: ignore[operator]
