"""What the plan language sees of a step."""

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from jax.ad_checkpoint import checkpoint_name
from meshwright.backends.jax.trace import trace

f32 = jnp.float32


def sds(*shape, dtype=f32):
    return jax.ShapeDtypeStruct(shape, dtype)


def paths(tensors):
    return [t.path for t in tensors]


def train_step(params, opt, batch):
    def loss(params):
        def layer(x, w):
            return mw.tag(jnp.tanh(x @ w), "layer/hidden"), None

        x, _ = jax.lax.scan(layer, batch["x"], params["blocks"])
        return (checkpoint_name(x, "last") ** 2).mean()

    value, grads = jax.value_and_grad(loss)(params)
    opt = jax.tree.map(lambda m, g: 0.9 * m + g, opt, grads)
    return jax.tree.map(lambda p, m: p - m, params, opt), opt, {"loss": value}


ARGS = ({"blocks": sds(3, 8, 8)}, {"blocks": sds(3, 8, 8)}, {"x": sds(16, 8)})


def test_paths_begin_with_the_arguments_names():
    traced = trace(train_step, ARGS)
    assert paths(traced.arguments) == ["params/blocks", "opt/blocks", "batch/x"]
    assert paths(traced.results) == ["out/0/blocks", "out/1/blocks", "out/2/loss"]


def test_tagged_values_are_found_inside_scans_once_each():
    tagged = trace(train_step, ARGS).tagged
    assert sorted((t.path, t.shape) for t in tagged) == [("acts/last", (16, 8)), ("acts/layer/hidden", (16, 8))]


def test_state_that_comes_back_is_recognised():
    returns = {t.path: t.returns for t in trace(train_step, ARGS).results}
    assert returns == {"out/0/blocks": "params/blocks", "out/1/blocks": "opt/blocks", "out/2/loss": None}


def test_state_is_matched_by_name_before_order():
    def step(mu, nu, x):
        return {"nu": nu, "mu": mu, "y": x.sum()}

    tree = {"a": sds(4), "b": sds(2)}
    returns = {t.path: t.returns for t in trace(step, (tree, tree, sds(3))).results}
    assert returns["out/mu/a"] == "mu/a"
    assert returns["out/nu/b"] == "nu/b"
    assert returns["out/y"] is None


def test_a_part_of_an_argument_is_state_too():
    def step(state, batch):
        return {"params": state["params"]}, batch.sum()

    args = ({"params": {"w": sds(4, 4)}, "count": sds(dtype=jnp.int32)}, sds(8))
    assert [t.returns for t in trace(step, args).results] == ["state/params/w", None]


ARRAYS = (sds(4, 4), sds(4, 4), sds(4, dtype=jnp.int32))


@pytest.mark.parametrize(
    ("step", "returns"),
    [
        (lambda x, w, i: x @ w, None),
        (lambda x, w, i: jnp.tanh(x)[i], None),
        (lambda x, w, i: jnp.take(x, i, 0), None),
        (lambda x, w, i: x.T, None),
        (lambda x, w, i: jnp.roll(x, 1, 0), None),
        (lambda x, w, i: x[::-1], None),
        (lambda x, w, i: jnp.linalg.cholesky(x @ x.T), None),
        (lambda x, w, i: w - 0.1 * (x.T @ x), "w"),
        (lambda x, w, i: jax.nn.relu(w) + x @ w, "w"),
        (lambda x, w, i: w.at[i].set(x), "w"),
        (lambda x, w, i: jax.lax.fori_loop(0, 4, lambda _, y: y @ w, x), "x"),
        (jax.jit(lambda x, w, i: x @ w, donate_argnums=1), "w"),
    ],
)
def test_of_one_array_the_shape_alone_says_nothing(step, returns):
    """Where a result has another name than the argument it is what became of that, number by number."""
    assert [t.returns for t in trace(step, ARRAYS).results] == [returns]


def test_what_has_no_arrays_returns_nothing():
    assert [t.returns for t in trace(lambda x, empty: (x * 2, empty, None), (sds(4), {})).results] == ["x"]


def test_a_single_array_is_named_by_its_argument():
    assert paths(trace(lambda x, y: x + y, (sds(2), sds(2))).arguments) == ["x", "y"]


def test_donation_of_a_jitted_step_is_kept():
    jitted = jax.jit(train_step, donate_argnums=(0, 1))
    assert trace(jitted, ARGS).donated == (0, 1)
    assert trace(train_step, ARGS).donated == ()


def test_reserved_argument_names_are_refused():
    with pytest.raises(mw.PlanError, match="MW302"):
        trace(lambda out: out, (sds(2),))


def test_a_jitted_step_keeps_its_argument_names():
    assert paths(trace(jax.jit(train_step), ARGS).arguments) == ["params/blocks", "opt/blocks", "batch/x"]
