"""tag, remat and GShard's verbs are the identity until a plan is applied, in every transformation."""

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from meshwright.backends.jax.annotate import mark_p, remat_context
from meshwright.dsl.plan import Remat, Shard, Split


def marks(fun, *args):
    return [e for e in jax.make_jaxpr(fun)(*args).jaxpr.eqns if e.primitive is mark_p]


def test_a_tag_changes_no_value_and_no_gradient():
    x = jnp.arange(6.0).reshape(2, 3)
    assert (mw.tag(x, "h") == x).all()
    plain = jax.grad(lambda x: (jnp.sin(x) ** 2).sum())(x)
    tagged = jax.grad(lambda x: (mw.tag(jnp.sin(x), "h") ** 2).sum())(x)
    np.testing.assert_array_equal(plain, tagged)


def test_a_tag_names_the_gradient_too():
    names = [e.params["name"] for e in marks(jax.grad(lambda x: (mw.tag(x, "h") ** 2).sum()), jnp.ones(3))]
    assert names == ["h", "h"]


def test_a_tag_on_a_pytree_names_each_leaf():
    found = marks(lambda x: mw.tag(x, "kv"), {"k": jnp.ones(2), "v": [jnp.ones(3)]})
    assert [e.params["name"] for e in found] == ["kv/k", "kv/v/0"]


@pytest.mark.parametrize("in_axis", [0, 1, 2])
def test_under_vmap_the_mapped_dim_stands_first(in_axis):
    x = jnp.ones((4, 5, 6))
    (mark,) = marks(jax.vmap(lambda x: mw.tag(x, "h"), in_axis, in_axis), x)
    rest = [n for i, n in enumerate((4, 5, 6)) if i != in_axis]
    assert mark.outvars[0].aval.shape == (x.shape[in_axis], *rest)
    np.testing.assert_array_equal(jax.vmap(lambda x: mw.tag(x * 2, "h"), in_axis, in_axis)(x), x * 2)


def test_verbs_in_place_shift_under_vmap():
    (split,) = marks(jax.vmap(lambda x: mw.split(x, 0, "data")), jnp.ones((2, 4)))
    assert split.params["assignment"] == Split(splits=(mw_split(1),))
    (last,) = marks(jax.vmap(lambda x: mw.split(x, -1, ["data"])), jnp.ones((2, 4)))
    assert last.params["assignment"].splits[0].dim == -1
    (shard,) = marks(jax.vmap(lambda x: mw.shard(x, np.arange(4))), jnp.ones((2, 4)))
    assert shard.params["assignment"] == Shard(device_assignment=((0, 1, 2, 3),))


def mw_split(dim):
    from meshwright.dsl.plan import SplitDim

    return SplitDim(dim=dim, axes=("data",))


def test_forward_mode_passes_through():
    _, tangent = jax.jvp(lambda x: mw.tag(x * 3, "h"), (jnp.ones(2),), (jnp.ones(2),))
    np.testing.assert_array_equal(tangent, [3.0, 3.0])


@pytest.mark.parametrize("policy", ["none", "full", "dots", "save"])
def test_remat_follows_the_plan_and_not_an_earlier_trace(policy):
    @jax.jit
    def loss(w, x):
        return mw.remat(lambda w, x: mw.tag(jnp.tanh(x @ w), "h").sum())(w, x)

    w, x = jnp.ones((3, 3)), jnp.ones((2, 3))
    expected = jax.grad(loss)(w, x)
    with remat_context(Remat(policy=policy, names=("h",))):
        text = str(jax.make_jaxpr(jax.grad(loss))(w, x))
        np.testing.assert_allclose(jax.grad(loss)(w, x), expected, rtol=1e-6)
    assert ("remat2" in text) == (policy != "none")
    assert "remat2" not in str(jax.make_jaxpr(jax.grad(loss))(w, x))
