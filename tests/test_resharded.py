"""What TPU7x's compiler makes of reshards before it partitions: held against its programs for tpu7x:2x2x2."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from meshwright.backends.jax.lowered.cut_dims import Layout, Move, cut_layouts
from meshwright.dsl.reader import loads

X, Y, Z, W = ("x", "y", "z", "w")
PAIRS = {X: 2, Y: 2, Z: 2, W: 2}
LONG_Z = {X: 2, Y: 2, Z: 4}


def first(*axes: str) -> Layout:
    """A layout that splits the first of three dims alone."""
    return [[*axes], [], []]


@pytest.mark.parametrize(
    ("sizes", "before", "after", "moves", "cut", "last"),
    [
        (LONG_Z, first(X, Y), [[Y], [X], []], [(X, 0, 1)], [2, 2, 16], [[Y], [], [], [X], []]),
        (LONG_Z, first(Z, Y), [[Y], [Z], []], [(Z, 0, 1)], [4, 2, 8], [[Y], [], [], [Z], []]),
        (LONG_Z, first(X, Y, Z), [[Y], [X], [Z]], [(Z, 0, 2), (X, 0, 1)], [2, 2, 4, 4], [[Y], [], [], [], [X], [Z]]),
        (PAIRS, first(X, Y, Z), [[Y, Z], [X], []], [(X, 0, 1)], [2, 2, 2, 8], [[Y], [Z], [], [], [X], []]),
        (PAIRS, first(X, Y, Z), [[Z, Y], [X], []], [(X, 0, 1)], [2, 2, 2, 8], [[Z], [Y], [], [], [X], []]),
        (PAIRS, [[X, Y], [Z], []], [[Y], [Z, X], []], [(X, 0, 1)], [2, 2, 16], [[Y], [], [], [Z, X], []]),
    ],
)
def test_a_dim_whose_axes_would_turn_round_is_cut_into_one_for_each(
    sizes: dict[str, int], before: Layout, after: Layout, moves: list[Any], cut: list[int], last: Layout
) -> None:
    """As the compiler does it where all that stays of the dim finds its place by moves of its own."""
    found = cut_layouts(before, after, [64, 64, 128], [Move(*move) for move in moves], sizes)
    assert found is not None
    shape, layouts = found
    assert shape == [*cut, 64, 128]
    assert layouts[0][: len(before[0])] == [[axis] for axis in before[0]]
    assert layouts[-1] == last


@pytest.mark.parametrize(
    ("sizes", "before", "after", "moves"),
    [
        (LONG_Z, first(X, Z), [[Z], [X], []], [(X, 0, 1)]),  # four parts do not fit where two were
        (LONG_Z, first(X, Y, Z), [[Y, Z], [X], []], [(X, 0, 1)]),
        (PAIRS, [[X, Y], [Z, W], []], [[Y], [X, W], [Z]], [(Z, 0, 2)]),  # the permute brings Z there first
        (PAIRS, first(X), [[], [X], []], [(X, 0, 1)]),
    ],
)
def test_a_dim_stays_whole_where_a_part_would_not_find_its_place(
    sizes: dict[str, int], before: Layout, after: Layout, moves: list[Any]
) -> None:
    assert cut_layouts(before, after, [64, 64, 128], [Move(*move) for move in moves], sizes) is None


def convolved(x: jax.Array, k: jax.Array) -> jax.Array:
    return jax.lax.conv_general_dilated(x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def products(x: jax.Array, w: jax.Array, v: jax.Array) -> jax.Array:
    return jnp.tanh(jnp.tanh(x) @ w) @ v


@pytest.mark.parametrize(
    ("step", "rules", "shapes", "sent"),
    [
        (jnp.sin, ("x: B@a+b M N", "out: B@b M@a N"), ((64, 64, 4096),), {"all-to-all": 8 << 20}),
        (
            convolved,
            ("x: N@a+b Y X C", "k: _ _ C D@a+b", "out: N@a+b Y X D"),
            ((32, 32, 32, 64), (3, 3, 64, 256)),
            {"all-gather": 9 << 15},
        ),
        (
            products,
            ("x: B M@a+b", "w: M H@a", "v: H@a N", "out: B N@a+b"),
            ((4096, 2048), (2048, 8192), (8192, 2048)),
            {"all-gather": 16 << 20, "all-reduce": 8 << 20, "collective-permute": 8 << 20},
        ),
    ],
)
def test_what_is_resharded_moves_as_in_the_compilers_programs(
    step: Callable[..., Any], rules: tuple[str, ...], shapes: tuple[tuple[int, ...], ...], sent: dict[str, int]
) -> None:
    """Two all-to-alls where v6e has one and a permute, kernels gathered whole where v6e's neighbours send theirs."""
    lines = "".join(f"  {rule}\n" for rule in rules)
    plan = loads(f"meshwright: 1\ntopology: tpu7x:2x2x2\nmesh: {{a: 4, b: 4}}\ntensors:\n{lines}")
    found: dict[str, int] = {}
    for each in mw.estimate(plan, step, tuple(jax.ShapeDtypeStruct(s, jnp.float32) for s in shapes)).collectives:
        found[each.kind] = found.get(each.kind, 0) + each.total_bytes
    assert found == sent
