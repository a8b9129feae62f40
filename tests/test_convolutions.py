"""Convolutions are computed right under every layout, also where XLA's partitioner is not right about them."""

import re

import jax
import jax.numpy as jnp
import meshwright as mw
import numpy as np
import pytest
from jax.extend.core import jaxpr_as_fun
from layouts import assert_close
from meshwright.backends.jax.convolutions import without_convolutions
from meshwright.backends.jax.drafts import Drafts
from meshwright.backends.jax.lowered.propagation import propagated
from meshwright.planner.convolution_layout import NEARLY

IMAGES = ("NHWC", "HWIO", "NHWC")


def convolve(x, k, **more):
    arguments = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": IMAGES} | more
    return jax.lax.conv_general_dilated(x, k, **arguments)


def operands(seed=0, groups=1):
    x, k = jax.random.split(jax.random.key(seed))
    return jax.random.normal(x, (4, 8, 12, 4)), jax.random.normal(k, (3, 3, 4 // groups, 8))


def on_cpu(mesh, tensors):
    return f"meshwright: 1\ntopology: cpu:8\nmesh: {mesh}\ntensors: {tensors}\n"


def gradients(fun):
    return jax.value_and_grad(lambda x, k: (fun(x, k) ** 2).mean(), (0, 1))


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"window_strides": (2, 1), "padding": ((1, 2), (0, -1))},
        {"lhs_dilation": (1, 2), "rhs_dilation": (2, 1), "padding": ((1, 1), (0, 2))},
        {"feature_group_count": 2},
    ],
)
def test_a_convolution_is_the_same_as_matrix_products(more):
    args = operands(groups=more.get("feature_group_count", 1))
    fun = gradients(lambda x, k: convolve(x, k, **more))
    products = without_convolutions(jax.make_jaxpr(fun)(*args))
    assert "conv_general_dilated" not in str(products)
    assert_close(jaxpr_as_fun(products)(*args), jax.tree.leaves(fun(*args)))


@pytest.mark.parametrize(
    ("mesh", "x", "k", "hidden"),
    [
        ("{data: 4, space: 2}", "B Y X@space C", "replicate", "infer"),
        ("{data: 4, space: 2}", "B Y X@space C", "I J C F@data", "infer"),
        ("{data: 2, space: 2, model: 2}", "B@data Y X@space C", "I J C F@model", "infer"),
        ("{a: 2, b: 2, c: 2}", "infer", "infer", "B Y X@b F@c+a"),
    ],
)
def test_split_windows_leave_gradients_as_they_are(mesh, x, k, hidden):
    step = gradients(lambda x, k: mw.tag(convolve(x, k), "hidden"))
    tensors = f"{{x: {x}, k: {k}, acts/hidden: {hidden}, out/**: infer}}"
    plan = mw.loads(on_cpu(mesh, tensors))
    args = operands()
    fast = mw.apply(plan, step, args)
    assert_close(fast(*args), step(*args))
    assert ("stablehlo.convolution" in fast.lower(*args).as_text()) == ("matrix products" not in str(fast.notes))
    assert all("matrix products" in note for note in mw.verify(plan, step, args).compiled.note.split(". ")[:1])


@pytest.mark.parametrize(
    ("x", "k"),
    [("B@data ...", "I@data ..."), ("B@data+space ...", "I@data ... F@space"), ("infer", "I@data J@space _ _")],
)
def test_kernels_split_along_the_window_are_read_whole(x, k):
    step = gradients(lambda x, k: convolve(x, k, window_strides=(4, 4), padding="VALID"))
    keys = jax.random.split(jax.random.key(0))
    args = jax.random.normal(keys[0], (8, 8, 16, 4)), jax.random.normal(keys[1], (4, 4, 4, 8))
    plan = mw.loads(on_cpu("{data: 4, space: 2}", f"{{x: {x}, k: {k}, out/1/0: infer, out/1/1: like k, '**': infer}}"))
    fast = mw.apply(plan, step, args)
    text = fast.lower(*args).as_text()
    assert "whole along the window" in str(fast.notes)
    assert "stablehlo.convolution" in text
    assert_close(fast(*args), step(*args))
    assert mw.estimate(plan, step, args).notes == fast.notes


def test_convolutions_that_the_partitioner_gets_right_stay():
    text = on_cpu("{data: 2, space: 4}", "{x: B@data Y X@space C, '**': replicate}")
    args = operands()
    fast = mw.apply(mw.loads(text), gradients(convolve), args)
    assert fast.lower(*args).as_text().count("stablehlo.convolution") == 3
    assert fast.notes == ()
    np.testing.assert_allclose(fast(*args)[0], gradients(convolve)(*args)[0], rtol=1e-5)


def test_a_split_of_features_alone_keeps_convolutions():
    text = on_cpu("{data: 2, model: 4}", "{x: B@data Y X C, k: I J C F@model, '**': infer}")
    args = operands()
    fast = mw.apply(mw.loads(text), lambda x, k: jnp.sum(convolve(x, k)), args)
    assert "stablehlo.convolution" in fast.lower(*args).as_text()


STEPS = (jax.ShapeDtypeStruct((16, 16, 16, 64), jnp.bfloat16), jax.ShapeDtypeStruct((3, 3, 64, 64), jnp.bfloat16))
"""An image, and a kernel that goes over it in steps of two."""


def in_steps(x, k):
    return convolve(x, k, window_strides=(2, 2))


def on_tpu(tensors):
    return mw.loads(f"meshwright: 1\ntopology: v3:2x2\nmesh: {{a: 2, b: 4}}\ntensors: {tensors}\n")


@pytest.mark.parametrize("tpu", [True, False])
def test_a_kernel_that_is_read_the_other_way_round_is_read_as_it_lies(tpu):
    """XLA folds it into the convolution for TPUs before it propagates layouts (``convolution-folding``)."""
    lowered = jax.jit(jax.grad(lambda x, k: in_steps(x, k).astype(jnp.float32).sum())).lower(*STEPS)
    assert ("stablehlo.reverse" in str(propagated(lowered, tpu=tpu))) != tpu


@pytest.mark.parametrize(("places", "split_along"), [(1, 0), (3, 3)])
def test_a_kernel_larger_than_images_splits_their_gradient_as_it_is_split(places, split_along):
    """The larger operand decides, and a kernel is as large as its window too (compiled for v6e: a gather of images and
    an all-to-all of their gradient, which the images' own layout would not have).
    """
    image, kernel, made = (jnp.ones(shape) for shape in ((8, 4, 4, 64), (places, places, 64, 32), (8, 4, 4, 32)))
    step = lambda made, k: jax.vjp(lambda x: convolve(x, k), image)[1](made)[0]  # noqa: E731
    plan = mw.loads(on_cpu("{data: 8}", "{made: B@data ..., k: Y X I@data F, out: infer}"))
    (line,) = (
        line
        for line in str(propagated(mw.apply(plan, step, (made, kernel)).lower(made, kernel))).splitlines()
        if "stablehlo.convolution" in line
    )
    found = re.search(r"sdy.sharding = #sdy.sharding_per_value<\[<@\w+, \[(.*?)\]>", line)
    assert found is not None
    assert found[1].split(", ").index('{"data"}') == split_along


def test_what_a_convolution_adds_up_is_compared_with_what_it_makes_by_their_own_sizes():
    """Seen compiled for v3: spread images make four times as many numbers as they have, so that they are gathered where
    the kernel is whole; of plain ones parts are multiplied, and added up.
    """

    def spread(x, k):
        return convolve(x, k, padding=((2, 1), (2, 1)), lhs_dilation=(2, 2))

    plan = on_tpu("{x: B@a ... C@b, k: replicate, out: B@a ...}")
    narrow = jax.ShapeDtypeStruct((3, 3, 64, 32), jnp.bfloat16)
    assert set(mw.estimate(plan, spread, STEPS).collective_bytes) == {"all-gather"}
    assert set(mw.estimate(plan, convolve, (STEPS[0], narrow)).collective_bytes) == {"all-reduce"}


def test_a_trial_that_the_partitioner_gets_wrong_is_priced_as_it_lies():
    """And far above one that it gets right, as what ``apply`` makes of it is."""
    wrong, right = (on_tpu(f"{{x: B@a Y@b ..., k: {k}, '**': infer}}") for k in ("... F@b", "replicate"))
    drafts = Drafts(gradients(in_steps), STEPS)
    near, better = (drafts.estimate(plan, nearly=True) for plan in (wrong, right))
    whole = drafts.estimate(wrong)
    assert near.notes == (NEARLY,)
    assert better.notes == ()
    assert "matrix products" in str(whole.notes)
    assert min(near.step_time_s, whole.step_time_s) > 2 * better.step_time_s
    assert drafts.estimate(wrong, nearly=True).notes == whole.notes  # once it is known how it is laid out anew


WHOLE = 64**4 * 2
"""Bytes of 64 images of 64 by 64 with 64 features, in bfloat16."""


@pytest.mark.parametrize(
    ("topology", "mesh", "x", "g", "expected"),
    [
        ("v3:4x4", (4, 8), "B@x+y ...", "B@x+y ...", ["all-reduce"]),
        ("v3:4x4", (4, 8), "B@x+y ...", "B@x _ W@y _", [WHOLE, WHOLE]),
        ("v3:4x4", (4, 8), "B@x _ W@y _", "B@x+y ...", [WHOLE, WHOLE]),
        ("v3:4x4", (4, 8), "B@x+y ...", "B@x H@y ...", [WHOLE, WHOLE]),
        ("v3:4x4", (4, 8), "B@x _ W@y _", "B@y _ W@x _", [WHOLE, WHOLE]),
        ("v3:4x4", (4, 8), "B@x+y ...", "_ _ W@x+y _", ["all-reduce", "all-to-all"]),
        ("v5e:4x4", (4, 4), "B@x+y ...", "B@y _ W@x _", [WHOLE, WHOLE]),
        ("v5e:4x4", (4, 4), "B@x _ W@y _", "B@y _ W@x _", ["all-reduce", "collective-permute"]),
    ],
)
def test_images_that_are_split_in_other_ways_are_gathered_for_the_gradient(topology, mesh, x, g, expected):
    """As compiled: where both split the batch, in so many ways and in others, every device has all of both."""

    def step(x, g):
        k = np.zeros((3, 3, 64, 64), "bfloat16")
        return {"k": jax.grad(lambda k: (convolve(x, k) * g).sum())(k)}

    axes = f"{{x: {mesh[0]}, y: {mesh[1]}}}"
    plan = f"meshwright: 1\ntopology: {topology}\nmesh: {axes}\ntensors: {{x: {x}, g: {g}, '**': replicate}}\n"
    image = jax.ShapeDtypeStruct((64, 64, 64, 64), "bfloat16")
    found = mw.estimate(mw.loads(plan), step, (image, image)).collectives
    said = [each.num_bytes if each.kind == "all-gather" else each.kind for each in found]
    assert said == expected or sorted(set(said)) == expected
