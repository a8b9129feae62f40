"""What cutting rows out of an argument's tiles takes: microseconds as the TPU compiler counts them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from small_steps import shape

F32, BF16 = jnp.float32, jnp.bfloat16
TOPOLOGY = {"v3": "v3:2x2", "v4": "v4:2x2x1", "v5e": "v5e:2x2", "v5p": "v5p:2x2x1", "v6e": "v6e:2x2"}
DEVICES = {"v3": 8, "v4": 8}


def microseconds(chip: str, step: Callable[..., Any], *args: Any) -> float:
    """Of a step that each device does whole."""
    mesh = f"{{x: {DEVICES.get(chip, 4)}}}"
    plan = mw.loads(f"meshwright: 1\ntopology: {TOPOLOGY[chip]}\nmesh: {mesh}\ntensors:\n  '**': replicate\n")
    return mw.estimate(plan, step, args).compute_s * 1e6


def multiplied(x: jax.Array, w: jax.Array) -> jax.Array:
    return x[:, 1] @ w


def computed(x: jax.Array) -> jax.Array:
    return jnp.tanh(x[:, 1]) * 2


def added(x: jax.Array) -> jax.Array:
    return x[:, 1].sum(-1)


@pytest.mark.parametrize(
    ("chip", "rows", "dtype", "compiled"),
    [
        ("v3", 8, F32, 113.4),
        ("v3", 4, F32, 93.9),
        ("v3", 2, BF16, 10.2),
        ("v3", 4, BF16, 84.8),
        ("v4", 64, F32, 96.1),
        ("v4", 2, F32, 70.5),
        ("v4", 8, BF16, 80.2),
        ("v5e", 8, F32, 88.4),
        ("v5e", 4, F32, 77.1),
        ("v5e", 2, BF16, 69.3),
        ("v5p", 8, F32, 39.0),
        ("v5p", 8, BF16, 35.7),
        ("v6e", 16, F32, 61.9),
        ("v6e", 2, F32, 18.5),
        ("v6e", 4, BF16, 18.8),
    ],
)
def test_a_row_of_each_that_a_product_reads_is_cut_before_by_a_kernel_of_its_own(
    chip: str, rows: int, dtype: Any, compiled: float
) -> None:
    args = (shape(1024, rows, 512, dtype=dtype), shape(512, 256, dtype=dtype))
    assert microseconds(chip, multiplied, *args) == pytest.approx(compiled, rel=0.11)


@pytest.mark.parametrize(
    ("chip", "step", "rows", "dtype", "compiled"),
    [
        ("v3", computed, 4, F32, 93.1),
        ("v3", added, 8, F32, 81.8),
        ("v4", computed, 8, BF16, 87.2),
        ("v4", added, 4, F32, 56.4),
        ("v5e", computed, 8, F32, 88.9),
        ("v5e", added, 8, F32, 51.2),
        ("v5p", computed, 4, F32, 34.2),
        ("v5p", added, 4, F32, 13.9),
        ("v6e", computed, 16, F32, 62.2),
        ("v6e", added, 8, F32, 26.1),
    ],
)
def test_it_is_cut_before_what_is_computed_of_it_and_added_up_in_passing(
    chip: str, step: Callable[..., Any], rows: int, dtype: Any, compiled: float
) -> None:
    assert microseconds(chip, step, shape(1024, rows, 512, dtype=dtype)) == pytest.approx(compiled, rel=0.1)


@pytest.mark.parametrize(
    ("chip", "step", "compiled"),
    [
        ("v3", lambda x: jnp.tanh(x[:, 1, :64]) * 2, 37.6),
        ("v3", lambda x: x[:, 1, :64].sum(-1), 21.4),
        ("v4", lambda x: x[:, 1, :64].sum(-1), 19.7),
        ("v5e", lambda x: jnp.tanh(x[:, 1, :64]) * 2, 15.0),
        ("v5e", lambda x: x[:, 1, :64].sum(-1), 14.2),
    ],
)
def test_what_is_cut_along_rows_and_lanes_is_cut_once(chip: str, step: Callable[..., Any], compiled: float) -> None:
    assert microseconds(chip, step, shape(1024, 8, 512)) == pytest.approx(compiled, rel=0.11)


@pytest.mark.parametrize(
    ("chip", "compiled"), [("v3", 125.8), ("v4", 121.1), ("v5e", 107.0), ("v5p", 40.8), ("v6e", 69.5)]
)
def test_all_tiles_are_read_that_a_slice_touches(chip: str, compiled: float) -> None:
    """Rows 4 to 12 are half of two tiles each."""
    found = microseconds(chip, lambda x: x[:, 4:12], shape(1024, 16, 512))
    assert found == pytest.approx(compiled, rel=0.05)


@pytest.mark.parametrize(("chip", "compiled"), [("v3", 34.3), ("v4", 25.5), ("v5e", 15.2), ("v6e", 9.5)])
def test_what_two_products_read_is_cut_once(chip: str, compiled: float) -> None:
    step = jax.grad(lambda w, x: jnp.tanh(multiplied(x, w)).sum())
    assert microseconds(chip, step, shape(256, 128), shape(512, 8, 256)) == pytest.approx(compiled, rel=0.15)


@pytest.mark.parametrize(("chip", "compiled"), [("v3", 18.3), ("v4", 16.2), ("v5e", 9.3)])
def test_of_several_slices_the_whole_is_copied(chip: str, compiled: float) -> None:
    args = (shape(256, 8, 256), shape(256, 128), shape(256, 128))
    found = microseconds(chip, lambda x, w, v: x[:, 0] @ w + x[:, 1] @ v, *args)
    assert found == pytest.approx(compiled, rel=0.15)


@pytest.mark.parametrize(("chip", "compiled"), [("v3", 0.51), ("v4", 0.81), ("v5e", 1.35), ("v6e", 1.28)])
def test_a_row_of_a_matrix_is_cut_in_passing(chip: str, compiled: float) -> None:
    """As a batch's tokens are, beside their labels."""
    found = microseconds(chip, lambda x: x[0] * 2, shape(2, 2048, dtype=jnp.int32))
    assert found == pytest.approx(compiled, rel=0.2)


def test_rows_that_fill_no_tiles_lie_otherwise() -> None:
    """f32[1024,12,512] lies with its 1024 on rows: nothing is cut (8.2 compiled on v5e)."""
    assert microseconds("v5e", multiplied, shape(1024, 12, 512), shape(512, 256)) < 10


@pytest.mark.parametrize(
    ("chip", "first", "every", "compiled"),
    [
        ("v3", 0, 256, 24.8),
        ("v3", 0, 128, 13.8),
        ("v3", 32, 128, 24.8),
        ("v4", 0, 256, 9.8),
        ("v4", 32, 128, 24.2),
        ("v4", 128, 256, 9.8),
        ("v5e", 0, 128, 8.4),
        ("v5e", 32, 128, 8.6),
        ("v6e", 128, 256, 2.2),
    ],
)
def test_columns_are_cut_meanwhile_where_a_row_of_lanes_begins_with_them(
    chip: str, first: int, every: int, compiled: float
) -> None:
    """Of all lanes that there are nothing is cut, but the copy reads them."""
    found = microseconds(chip, lambda x: jnp.tanh(x[:, :, first : first + 32]) * 2, shape(64, 64, every))
    assert found == pytest.approx(compiled, rel=0.25)


@pytest.mark.parametrize(
    ("chip", "compiled"), [("v3", 42.5), ("v4", 38.9), ("v5e", 29.5), ("v5p", 11.2), ("v6e", 14.7)]
)
def test_one_number_of_each_row_is_added_up_to_lie_with_others(chip: str, compiled: float) -> None:
    found = microseconds(chip, lambda x, y: x[:, 0] * y, shape(16384, 256), shape(16384))
    assert found == pytest.approx(compiled, rel=0.15)


@pytest.mark.parametrize(
    ("layout", "out", "compiled"),
    [
        ("A@x B", "C@x D", 8.98),
        ("A@x B", "C D@x", 3.18),
        ("A@x B", "replicate", 9.59),
        ("A B@x", "C@x D", 6.79),
        ("A B@x", "C D@x", 1.53),
        ("A B@x", "replicate", 2.03),
        ("replicate", "C@x D", 8.92),
        ("replicate", "C D@x", 1.55),
        ("replicate", "replicate", 1.80),
    ],
)
def test_parts_that_the_partitioner_cuts_out_of_slices_are_priced(layout: str, out: str, compiled: float) -> None:
    """Some of them without indices. On v4, where kernels so small are known to 1.5 us."""
    text = f"meshwright: 1\ntopology: v4:2x2x1\nmesh: {{x: 8}}\ntensors:\n  x: {layout}\n  w: replicate\n  out: {out}\n"
    args = (shape(2048, 1024), shape(1024, 256))
    found = mw.estimate(mw.loads(text), lambda x, w: jnp.tanh(x[:8] @ w), args).compute_s * 1e6
    assert found == pytest.approx(compiled, abs=1.5)
