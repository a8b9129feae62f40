"""Rewrites before propagation change no result, and leave what XLA leaves."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxlib import xla_client
from meshwright.backends.jax.lowered.inline import inline_calls
from meshwright.backends.jax.lowered.order import in_order_of_use
from meshwright.backends.jax.lowered.propagation import main_function
from meshwright.backends.jax.lowered.rewrites.common import constants_once
from meshwright.backends.jax.lowered.rewrites.simplify import constants_ahead, simplify


def rewritten(step, *args, large=True, tpu=True):
    lowered = jax.jit(step, keep_unused=True).lower(*args)
    module = lowered.compiler_ir("stablehlo").operation.clone()
    inline_calls(module, large=large)
    simplify(module, tpu=tpu)
    in_order_of_use(module)
    assert module.verify()
    return module


def run(module, *args):
    """The results of a module on the first CPU device."""
    device = jax.devices()[0]
    devices = xla_client.DeviceList((device,))
    executable = device.client.compile_and_load(str(module), devices, xla_client.CompileOptions())
    out = executable.execute_sharded([jax.device_put(leaf, device) for leaf in jax.tree.leaves(args)])
    return [np.asarray(arrays[0]) for arrays in out.disassemble_into_single_device_arrays()]


def kinds(module):
    with module.context:
        block = main_function(module).regions[0].blocks[0]
        return collections.Counter(op.operation.name.partition(".")[2] for op in block.operations)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def norm(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-6)


def attention(x):
    s = jnp.einsum("btd,bsd->bts", x, x) / np.sqrt(x.shape[-1])
    s = jnp.where(jnp.tril(jnp.ones(s.shape[-2:], bool)), s, -1e9)
    return jnp.einsum("bts,bsd->btd", jax.nn.softmax(s), x)


def picked(x, i):
    return jnp.take_along_axis(jax.nn.log_softmax(x), i[..., None], -1).sum()


def mixture(x, w):
    gates = jax.nn.softmax(x @ w)
    mask = jax.nn.one_hot(jnp.argmax(gates, -1), w.shape[-1])
    place = jnp.cumsum(mask, 1) * mask
    return jnp.einsum("bse,bsd->ed", (gates * mask) * (place < 3), x)


def scanned(x, ws):
    return jax.lax.scan(lambda c, w: (jnp.tanh(norm(c @ w)), c.sum()), x, ws)


def lookup(table, i):
    return jnp.sum(table[i] @ table.T)


def adam(w, g):
    opt = optax.adamw(1e-3)
    return opt.update({"a": g}, opt.init({"a": w}), {"a": w})


def softmax_loss(x, i):
    return optax.softmax_cross_entropy_with_integer_labels(x, i).mean()


VECTORS = (
    ("gjsec,gsj->gsec", (2, 3, 4, 5, 6), (2, 4, 3)),
    ("gke,gkc->gkec", (2, 3, 4), (2, 3, 5)),
    ("bij,bkj->bik", (2, 4, 5), (2, 1, 5)),
    ("bij,bij->b", (3, 4, 5), (3, 4, 5)),
    ("a,bc->cba", (4,), (2, 3)),
    ("ab,b->a", (4, 1), (1,)),
)

INDICES = np.random.default_rng(5).integers(0, 8, size=(4, 6))

CASES = {
    "norm": (jax.grad(lambda x: jnp.sum(norm(x) ** 3)), (normal(0, 4, 6, 8),)),
    "attention": (jax.grad(lambda x: jnp.sum(attention(x) ** 2)), (normal(0, 4, 6, 8),)),
    "picked": (jax.value_and_grad(picked), (normal(0, 4, 6, 8), INDICES)),
    "mixture": (jax.grad(lambda w, x: jnp.sum(mixture(x, w) ** 2)), (normal(1, 8, 5), normal(0, 4, 6, 8))),
    "scanned": (jax.grad(lambda w, x: jnp.sum(scanned(x, w)[0] ** 2)), (normal(0, 3, 8, 8), normal(1, 4, 8))),
    "lookup": (jax.grad(lookup), (normal(0, 8, 5), INDICES)),
    "adam": (adam, (normal(0, 8, 5), normal(1, 8, 5))),
    "integers": (lambda i: (i * 1 + 0) // 3 % 4 - (i > 2) * i, (INDICES,)),
    "softmax loss": (jax.value_and_grad(softmax_loss), (normal(0, 4, 6, 8), INDICES)),
    "convolution": (
        jax.grad(lambda k, x: jnp.sum(jax.lax.conv(x, k, (1, 1), "SAME") ** 2)),
        (normal(0, 3, 3, 3, 3), normal(1, 2, 3, 8, 8)),
    ),
    "convolution of one place": (
        jax.grad(lambda x, k: jnp.sum(jax.lax.conv(x, k, (1, 1), "SAME") ** 2)),
        (normal(0, 2, 3, 8, 8), normal(1, 3, 3, 1, 1)),
    ),
    "divisions": (lambda x: x / 3.0 / (x + 5.0) / (x * x + 1.0) - 0.0, (normal(0, 4, 6),)),
    "complex": (lambda x: jnp.exp(1j * x).imag * 1.0, (normal(0, 4, 6),)),
    "random": (lambda x: x + jax.random.normal(jax.random.key(0), (4, 6)), (normal(0, 4, 6),)),
    **{
        f"product by a vector, {spec}": (
            lambda x, y, spec=spec: jnp.einsum(spec, x, y),
            (normal(0, *left), normal(1, *right)),
        )
        for spec, left, right in VECTORS
    },
    "gelu": (jax.grad(lambda x: jnp.sum(jax.nn.gelu(x) + jax.nn.silu(x))), (normal(0, 4, 6),)),
}


@pytest.mark.parametrize("name", CASES)
def test_a_rewritten_step_computes_what_it_computed(name):
    step, args = CASES[name]
    expected = jax.tree.leaves(jax.jit(step)(*args))
    for now, then in zip(run(rewritten(step, *args), *args), expected, strict=True):
        np.testing.assert_allclose(now, then, rtol=2e-5, atol=2e-5)


def test_a_mean_is_taken_without_the_dim_that_it_sums_over():
    module = rewritten(lambda x: x - x.mean(-1, keepdims=True), normal(0, 4, 8))
    assert kinds(module)["reshape"] == 0
    assert kinds(module)["divide"] == 0
    assert kinds(module)["multiply"] == 1


def test_what_is_computed_of_dims_put_together_is_computed_of_these():
    module = rewritten(lambda x: jnp.sin(jnp.tanh(x).reshape(4, 48) + 1.0), normal(0, 4, 6, 8))
    (sine,) = (line for line in str(module).splitlines() if "stablehlo.sine " in line)
    assert "tensor<4x48xf32>" in sine


def test_the_gradient_of_picking_one_of_a_row_needs_no_scatter_on_tpus():
    module = rewritten(jax.grad(picked), normal(0, 4, 6, 8), INDICES)
    assert kinds(module)["scatter"] == 0
    assert kinds(module)["select"] > 0


@pytest.mark.parametrize(("size", "gathers"), [(1, 0), (2, 1)])
def test_an_index_into_a_dim_of_one_number_looks_nothing_up(size, gathers):
    x = normal(11, 4, 6, size)
    module = rewritten(lambda x: jnp.take(x, 0, -1) * 2, x)
    assert kinds(module)["gather"] == gathers
    np.testing.assert_array_equal(run(module, x)[0], 2 * x[..., 0])


def test_two_scatters_are_added_as_they_are():
    table, few, more = normal(0, 16, 4), np.array([1, 2, 3]), np.array([4, 5])
    module = rewritten(jax.grad(lambda w: w[few].sum() + (w[more] ** 2).sum() + (w**2).sum()), table)
    assert kinds(module)["scatter"] == 2
    assert kinds(module)["add"] >= 1


def test_a_transposed_product_is_the_product_of_its_operands_exchanged():
    module = rewritten(lambda a, b: (a @ b).T, normal(0, 4, 8), normal(1, 8, 5))
    assert kinds(module) == {"dot_general": 1, "return": 1}


@pytest.mark.parametrize(("spec", "left", "right"), VECTORS)
def test_a_product_by_a_vector_is_computed_number_by_number(spec, left, right):
    """Also by one whose own dims have size one; a product of two matrices stays one."""
    found = kinds(rewritten(lambda x, y: jnp.einsum(spec, x, y), normal(0, *left), normal(1, *right)))
    assert (found["dot_general"], found["multiply"]) == (0, 1)
    assert kinds(rewritten(lambda x, y: x @ y, normal(0, 4, 2), normal(1, 2, 3)))["dot_general"] == 1


@pytest.mark.parametrize(("places", "tpu", "reverses"), [(1, False, 0), (3, False, 1), (3, True, 0)])
def test_a_kernel_is_read_as_it_is_for_the_gradient_of_what_it_convolves(places, tpu, reverses):
    """One of one place anywhere, by TPUs every one: these go over it from its end."""
    convolved = lambda x, k: jnp.sum(jax.lax.conv(x, k, (1, 1), "SAME") ** 2)  # noqa: E731
    args = normal(0, 2, 4, 8, 8), normal(1, 4, 4, places, places)
    module = rewritten(jax.grad(convolved), *args, tpu=tpu)
    assert kinds(module)["reverse"] == reverses
    np.testing.assert_allclose(run(module, *args)[0], jax.grad(convolved)(*args), rtol=1e-4, atol=1e-4)


def test_equal_operations_are_computed_once():
    module = rewritten(lambda x: jnp.sin(x) * 2 + jnp.sin(x) * 2, normal(0, 4))
    assert kinds(module)["sine"] == 1


def test_what_is_added_or_multiplied_in_either_order_is_computed_once():
    """So the gradient of a square, ``xg + gx``, is sent to other devices once."""
    x, g = normal(0, 4), normal(1, 4)
    module = rewritten(lambda x, g: [jnp.sin(x * g) + jnp.sin(g * x), jnp.sin(x - g) + jnp.sin(g - x)], x, g)
    assert kinds(module)["sine"] == 3


def test_equal_reductions_and_scatters_are_computed_once():
    def norms(x, table):
        scaled = [x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + n) for n in (1, 2)]
        return scaled, [table.at[INDICES].add(x) for _ in range(2)]

    module = rewritten(norms, normal(0, 4, 6, 3), normal(1, 8, 3))
    assert (kinds(module)["reduce"], kinds(module)["scatter"]) == (1, 1)


def test_other_reductions_of_the_same_stay():
    module = rewritten(lambda x: (x.sum(0), x.max(0), x.sum(1), jnp.square(x).sum(0)), normal(0, 4, 6))
    assert kinds(module)["reduce"] == 4


def test_a_masked_product_is_a_choice():
    module = rewritten(lambda x: x * (x > 0).astype(x.dtype), normal(0, 4))
    assert kinds(module)["multiply"] == 0
    assert kinds(module)["select"] == 1


def deep(x):
    for _ in range(12):
        x = jnp.sin(jnp.cos(x))
    return x


def test_a_large_function_that_is_called_twice_stays_a_function():
    large, small = jax.jit(deep), jax.jit(lambda x: jnp.sin(x))
    assert kinds(rewritten(lambda x: large(large(x)), normal(0, 4), large=False))["call"] == 2
    assert kinds(rewritten(lambda x: large(small(small(x))), normal(0, 4), large=False))["call"] == 0
    assert kinds(rewritten(lambda x: large(large(x)), normal(0, 4)))["call"] == 0


def test_branches_that_a_constant_chooses_stand_in_the_place_of_the_conditional():
    """``diagonal`` asks for the platform, one conditional for the index of another."""

    def step(x):
        return jax.grad(lambda x: (jnp.diagonal(x) ** 2).sum() + jax.lax.cond(x[0, 0] > 0, jnp.sum, jnp.max, x))(x)

    x = normal(3, 5, 5)
    module = rewritten(step, x)
    assert kinds(module)["case"] == 2  # the one that hangs on data, and its gradient
    np.testing.assert_allclose(run(module, x)[0], jax.jit(step)(x), rtol=1e-6)


@pytest.mark.parametrize(("turns", "loops"), [(1, 0), (2, 2)])
def test_a_loop_of_one_turn_is_written_out_with_all_of_its_stack(turns, loops):
    """Forward and backward, what it takes of a stack and puts back being all of it."""

    def step(w, x):
        return jax.grad(lambda w: (jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), x), x, w)[1] ** 2).sum())(w)

    w, x = normal(3, turns, 4, 4), normal(4, 4, 4)
    module = rewritten(step, w, x)
    found = kinds(module)
    assert found["while"] == loops
    assert turns > 1 or not found["dynamic_slice"] + found["dynamic_update_slice"]
    np.testing.assert_allclose(run(module, w, x)[0], jax.jit(step)(w, x), rtol=1e-5, atol=1e-6)


def test_constants_that_are_merged_beforehand_leave_the_same_module():
    """Once for a step, as each plan would do it; not those that something asks to be apart."""

    def step(x):
        return jnp.where(x > 2.0, x * 2.0, x + 2.0) / 2.0 + jnp.full(x.shape, 2.0)

    x = normal(0, 4, 8)
    before = jax.jit(step).lower(x).compiler_ir("stablehlo").operation
    merged, apart = before.clone(), before.clone()
    constants_once(merged, lambda _: False)
    constants_once(apart, lambda _: True)
    assert kinds(merged)["constant"] < kinds(before)["constant"]
    assert str(apart) == str(before)
    for module in (merged, apart):
        simplify(module, tpu=True)
    assert str(merged) == str(apart)


def test_constants_that_are_computed_beforehand_leave_the_same_module():
    """Products of constants, and quotients by them, in loops too; not what arguments make."""

    def step(x):
        scale = jnp.full(x.shape, 3.0) * 2.0
        halved = jax.lax.fori_loop(0, 3, lambda _, y: y / (jnp.full(x.shape, 1.0) + 1.0), x)
        return x / scale + halved / 5.0 + x / halved

    x = normal(0, 4, 8)
    plain = jax.jit(step).lower(x).compiler_ir("stablehlo").operation
    ahead = plain.clone()
    constants_ahead(ahead)
    assert kinds(plain)["divide"] == 3
    assert kinds(ahead)["divide"] == 1
    assert str(ahead).count("stablehlo.divide") == 1
    np.testing.assert_allclose(run(ahead, x)[0], jax.jit(step)(x), rtol=1e-6)
    for module in (plain, ahead):
        simplify(module, tpu=True)
        in_order_of_use(module)
    assert str(plain) == str(ahead)


def test_no_constants_are_computed_beforehand_that_a_branch_hangs_on():
    """They would be known when branches are taken, as they are not in a step prepared at once."""

    def step(x):
        return jax.lax.cond(jnp.full((), 1.0) * 2.0 > 1.0, jnp.sin, jnp.cos, x)

    before = jax.jit(step).lower(normal(0, 4)).compiler_ir("stablehlo").operation
    after = before.clone()
    constants_ahead(after)
    assert kinds(after)["case"] == 1
    assert str(after) == str(before)
