"""A plan may name axes in several orders: the program keeps to one between them, and computes the same."""

import itertools

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from meshwright.backends.jax.axis_order import common_order, in_order

AXES = ("a", "b", "c")


def shardings(*specs):
    mesh = Mesh(np.array(jax.devices()).reshape(2, 2, 2), AXES, axis_types=(AxisType.Auto,) * 3)
    return [NamedSharding(mesh, PartitionSpec(*spec)) for spec in specs]


def test_one_order_is_left_alone_whichever_it_is():
    ours = shardings([("c", "a")], ["a", ("c", "b")], [None, ("a", "b")])
    order = common_order(AXES, ours)
    assert order.index("c") < order.index("a") < order.index("b")
    assert [in_order(s, order) for s in ours] == [None, None, None]


def test_where_orders_disagree_it_is_the_meshs():
    first, second = shardings([("a", "c")], [("c", "a"), "b"])
    order = common_order(AXES, [first, second])
    assert order == AXES
    assert in_order(first, order) is None
    assert in_order(second, order).spec == PartitionSpec(("a", "c"), "b")


@pytest.mark.parametrize(("major", "minor"), list(itertools.permutations(AXES, 2)))
def test_a_product_between_two_orders_computes_the_same(major, minor):
    (rest,) = set(AXES) - {major, minor}

    def step(x, w):
        hidden = mw.tag(jnp.einsum("EGCM,EMH->EGCH", mw.tag(x, "in"), w), "hidden")
        return (hidden**2).sum(), hidden

    plan = mw.loads(f"""
meshwright: 1
topology: cpu:8
mesh: {{a: 2, b: 2, c: 2}}
tensors:
  x: infer
  w: infer
  acts/in: E@{major}+{minor} G C M@{rest}
  acts/hidden: E G@{minor}+{major} C@{rest} H
  out/**: infer
""")
    rng = np.random.default_rng(0)
    args = tuple(rng.normal(size=s).astype(np.float32) for s in ((8, 8, 4, 16), (8, 16, 32)))
    gradient = jax.grad(step, argnums=(0, 1), has_aux=True)
    actual, expected = mw.apply(plan, gradient, args)(*args), gradient(*args)
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, e, rtol=1e-4, atol=1e-3)
