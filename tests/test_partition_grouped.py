"""Products of groups of rows, each with a matrix of its own (``jax.lax.ragged_dot``): what devices send for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from jax import lax
from meshwright.backends.jax.lowered.step_graph import step_graph
from meshwright.planner.compute.products import product_of

ROWS, DEPTH, COLUMNS, GROUPS = 4096, 512, 1024, 8
LEFT, RIGHT, MADE = 2 * ROWS * DEPTH, 2 * GROUPS * DEPTH * COLUMNS, 2 * ROWS * COLUMNS  # bytes, in bfloat16
Sent = dict[str, int]


def forward(x: jax.Array, w: jax.Array, sizes: jax.Array) -> dict[str, jax.Array]:
    return {"made": lax.ragged_dot(x, w, sizes)}


def backward(x: jax.Array, w: jax.Array, sizes: jax.Array, grad: jax.Array) -> dict[str, jax.Array]:
    gradients = jax.vjp(lambda x, w: lax.ragged_dot(x, w, sizes), x, w)[1](grad)
    return dict(zip(("left", "right"), gradients, strict=True))


def arguments(step: Callable[..., Any]) -> tuple[jax.ShapeDtypeStruct, ...]:
    shapes = [(ROWS, DEPTH), (GROUPS, DEPTH, COLUMNS), (GROUPS,), (ROWS, COLUMNS)]
    every = [jax.ShapeDtypeStruct(s, jnp.int32 if s == (GROUPS,) else jnp.bfloat16) for s in shapes]
    return tuple(every[:3] if step is forward else every)


def plan(layouts: str, made: str = "infer", topology: str = "v5e:2x2") -> mw.Plan:
    names = ("x", "w", "sizes", "grad")
    lines = [f"  {name}: {layout.strip()}" for name, layout in zip(names, layouts.split("|"), strict=False)]
    text = f"meshwright: 1\ntopology: {topology}\nmesh: {{a: 2, b: 2}}\ntensors:\n" + "\n".join(lines)
    return mw.loads(f"{text}\n  out/**: {made}\n")


def sent(collectives: Any) -> Sent:
    found: Counter[str] = Counter()
    for each in collectives:
        found[each.kind] += each.num_bytes * each.times
    return dict(found)


FORWARD: list[tuple[str, str, Sent]] = [
    ("_ _ | _ _ _ | _", "infer", {}),
    ("_@a _ | _ _ _ | _", "infer", {"all-gather": LEFT}),
    ("_ _ | _@a _ _ | _", "infer", {"all-gather": RIGHT}),
    ("_ _ | _ _ _@a | _", "infer", {}),
    ("_ _ | _ _ _@a | _", "_ _", {"all-gather": MADE}),
    ("_@a _ | _ _ _@b | _", "infer", {"all-gather": LEFT}),
    ("_ _@a | _ _@a _ | _", "infer", {"all-reduce": MADE}),
    ("_ _@a | _ _ _ | _", "infer", {"all-reduce": MADE}),
    ("_ _ | _ _@a _ | _", "infer", {"all-reduce": MADE}),
    ("_ _@a | _ _@a _ | _", "_ _@a", {"reduce-scatter": MADE}),
    ("_ _@a | _ _@a _ | _", "_@a _", {"reduce-scatter": MADE}),
    ("_ _@a | _ _@a _ | _", "_ _@b", {"all-reduce": MADE // 2}),
    ("_ _@a | _ _ _ | _", "_ _@a", {"all-gather": LEFT}),
    ("_ _ | _ _@a _ | _", "_ _@a", {"all-to-all": RIGHT // 2}),
    ("_ _ | _@a _ _ | _", "_ _@a", {"all-to-all": RIGHT // 2}),
    ("_ _@a | _ _@b _ | _", "_ _", {"collective-permute": LEFT // 2, "all-reduce": MADE}),
]
"""Layouts of rows, matrices and sizes, that of what is made, and what the compiler for v5e sends."""

BACKWARD: list[tuple[str, Sent]] = [
    ("_ _ | _ _ _ | _ | _ _", {}),
    ("_@a _ | _ _ _ | _ | _@a _", {"all-gather": LEFT + MADE}),
    ("_ _ | _ _ _@a | _ | _ _@a", {"all-reduce": LEFT}),
    ("_ _@a | _ _@a _ | _ | _ _", {}),
    ("_ _ | _@a _ _ | _ | _ _", {"all-gather": RIGHT}),
]


@pytest.mark.parametrize(("layouts", "made", "expected"), FORWARD)
def test_groups_and_their_rows_are_whole_and_all_else_is_split_as_in_any_product(
    layouts: str, made: str, expected: Sent
) -> None:
    found = mw.estimate(plan(layouts, made), forward, arguments(forward))
    assert sent(found.collectives) == expected


@pytest.mark.parametrize(("layouts", "expected"), BACKWARD)
def test_gradients_of_groups_are_products_of_groups(layouts: str, expected: Sent) -> None:
    found = mw.estimate(plan(layouts), backward, arguments(backward))
    assert sent(found.collectives) == expected


@pytest.mark.tpu_compiler
@pytest.mark.parametrize(("layouts", "made"), [("_ _@a | _ _@a _ | _", "_ _@b"), ("_@a _ | _ _ _@b | _", "infer")])
def test_the_compiler_sends_as_much(layouts: str, made: str) -> None:
    result = mw.verify(plan(layouts, made), forward, arguments(forward))
    assert sent(result.predicted.collectives) == sent(result.compiled.collectives)


def test_their_multiplications_take_time_though_the_compiler_counts_nothing_of_them() -> None:
    one, half = (
        next(
            kernel
            for kernel in mw.estimate(plan(layouts), forward, arguments(forward)).kernels
            if kernel.label == "ragged_dot"
        )
        for layouts in ("_ _ | _ _ _ | _", "_ _ | _ _ _@a | _")
    )
    assert one.flops == 2 * ROWS * DEPTH * COLUMNS
    assert half.flops == one.flops / 2
    assert half.predicted_s < 0.7 * one.predicted_s
    assert not one.counted


def test_few_rows_wait_for_all_matrices() -> None:
    """As experts do that decode: of eight matrices of 2048 by 2048 in float32 each device reads all."""
    shapes = [(16, 2048), (8, 2048, 2048)]
    args = *(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes), jax.ShapeDtypeStruct((8,), jnp.int32)
    (kernel,) = (
        each for each in mw.estimate(plan("_ _ | _ _ _ | _"), forward, args).kernels if each.label == "ragged_dot"
    )
    assert kernel.num_bytes >= 4 * 8 * 2048**2


@pytest.mark.parametrize(("precision", "passes"), [(None, 1), ("highest", 6)])
def test_float32_is_multiplied_in_as_many_passes_as_is_asked_for(precision: str | None, passes: int) -> None:
    def step(x: jax.Array, w: jax.Array, sizes: jax.Array) -> dict[str, jax.Array]:
        return {"made": lax.ragged_dot(x, w, sizes, precision=precision)}

    args = tuple(
        jax.ShapeDtypeStruct(each.shape, jnp.float32 if each.dtype == jnp.bfloat16 else each.dtype)
        for each in arguments(forward)
    )
    graph = step_graph(plan("_ _ | _ _ _ | _"), step, args).graph
    (op,) = graph.of_kind("ragged_dot")
    assert product_of(graph, op).passes == passes


def test_a_batch_of_groups_is_split_as_other_dims_are() -> None:
    """Rows and matrices of a batch, each with sizes of its own."""

    def step(x: jax.Array, w: jax.Array, sizes: jax.Array) -> dict[str, jax.Array]:
        return {"made": jax.vmap(lax.ragged_dot)(x, w, sizes)}

    shapes = [(4, 256, 128), (4, 8, 128, 512)]
    args = *(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes), jax.ShapeDtypeStruct((4, 8), jnp.int32)
    found = mw.estimate(plan("_@a _ _ | _@a _ _ _@b | _@a _"), step, args)
    assert not found.collectives
    (kernel,) = (each for each in found.kernels if each.label == "ragged_dot")
    assert kernel.flops == 2 * 4 * 256 * 128 * 512 / 4


def test_matrices_of_groups_are_split_over_devices_where_rows_are_many() -> None:
    """A training step whose experts are such products is split along their hidden features, as none was found before
    that sends less: devices added up what each had computed of all rows.
    """

    def step(w: dict[str, jax.Array], x: jax.Array, sizes: jax.Array) -> dict[str, jax.Array]:
        def loss(w: dict[str, jax.Array]) -> jax.Array:
            hidden = jax.nn.relu(lax.ragged_dot(x, w["in"], sizes))
            return jnp.mean(lax.ragged_dot(hidden, w["out"], sizes) ** 2)

        return jax.tree.map(lambda own, grad: own - 0.1 * grad, w, jax.grad(loss)(w))

    w = {
        "in": jax.ShapeDtypeStruct((8, 512, 2048), jnp.float32),
        "out": jax.ShapeDtypeStruct((8, 2048, 512), jnp.float32),
    }
    args = w, jax.ShapeDtypeStruct((4096, 512), jnp.float32), jax.ShapeDtypeStruct((8,), jnp.int32)
    found = mw.search(step, args, topology="v5e:2x4", mesh={"a": 8}, time_limit_s=120)
    whole = mw.loads('meshwright: 1\ntopology: v5e:2x4\nmesh: {a: 8}\ntensors:\n  "**": replicate\n')
    hidden = mw.loads(
        "meshwright: 1\ntopology: v5e:2x4\nmesh: {a: 8}\ntensors:\n"
        "  w/in: _ _ _@a\n  w/out: _ _@a _\n  '{x,sizes}': replicate\n  out/**: infer\n"
    )
    slower, as_quick = (mw.estimate(each, step, args).step_time_s for each in (whole, hidden))
    assert found.step_time_s is not None
    assert found.step_time_s <= as_quick < 0.5 * slower
    assert found.bound_s is not None
    assert found.bound_s <= as_quick
