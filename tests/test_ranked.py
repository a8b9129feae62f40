"""What stands as a kernel of its own: sorts, the largest of a dim, transforms, factors, tables that are added to."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import meshwright as mw
import pytest
from jax import ShapeDtypeStruct as Shape
from meshwright.planner.estimate.figures import Estimate

MIB = 2**20
CLOCK_HZ = 1.5e9


def estimate(step: Any, *args: Any, split: str = "") -> Estimate:
    """A step on a v5e, everything replicated but its last argument where it is ``split``."""
    names = "abc"[: len(args)]
    tensors = f'"{names[-1]}": "{split}", ' if split else ""
    plan = f'meshwright: 1\ntopology: "v5e:2x2"\nmesh: {{d: 4}}\ntensors: {{{tensors}"**": infer}}\n'
    return mw.estimate(mw.loads(plan), step, args)


def wide(*shape: int) -> Shape:
    return Shape(shape, jnp.float32)


def test_what_is_sorted_along_its_last_dim_is_copied_there_and_back() -> None:
    """Compiled for v5e: 888448 cycles for each copy and 737824 for the places; 512.02 MiB, 256 of them the copy and the
    places; along the first dim 12.03 MiB and 272 cycles.
    """
    rows = estimate(lambda a: jnp.sort(a, -1), wide(4096, 8192))
    assert rows.compute_s * CLOCK_HZ == pytest.approx(2514720, rel=0.1)
    assert rows.peak_bytes == pytest.approx(512.02 * MIB, rel=0.01)
    columns = estimate(lambda a: jnp.sort(a, 0), wide(2048, 512))
    assert columns.compute_s * CLOCK_HZ < 1000
    assert columns.peak_bytes == pytest.approx(12.03 * MIB, rel=0.05)


def test_a_sort_of_a_product_is_copied_back_alone() -> None:
    """Compiled for v5e: 42926 cycles, of which 11570 the product's and 30588 the copy of the result."""
    found = estimate(lambda a, b: jnp.sort(a @ b, -1), wide(1024, 256), wide(256, 2048))
    assert found.compute_s * CLOCK_HZ == pytest.approx(42926, rel=0.1)


@pytest.mark.parametrize(("shape", "cycles"), [((256, 65536), 219214), ((1024, 65536), 1726416)])
def test_the_largest_of_a_dim_take_the_copy_of_all_that_they_are_of(shape: tuple[int, ...], cycles: int) -> None:
    found = estimate(lambda a: jax.lax.top_k(a, 50), wide(*shape))
    assert found.compute_s * CLOCK_HZ == pytest.approx(cycles, rel=0.1)
    num_bytes = 4 * shape[0] * shape[1]
    assert found.uncounted_s >= 0.99 * num_bytes / 819e9  # what is not counted still reads all of it


@pytest.mark.parametrize(("columns", "cycles"), [(64, 114956), (128, 121085)])
def test_a_table_that_a_step_is_lent_is_copied_before_rows_are_added(columns: int, cycles: int) -> None:
    """Of 64 columns to lie row by row, and back; compiled for v5e."""
    args = wide(50000, columns), Shape((8192,), jnp.int32), wide(8192, columns)
    found = estimate(lambda a, b, c: a.at[b].add(c), *args)
    assert found.compute_s * CLOCK_HZ == pytest.approx(cycles, rel=0.1)
    assert found.uncounted_s > 0


@pytest.mark.parametrize(
    ("step", "args", "cycles", "near"),
    [
        (jnp.fft.rfft, (wide(1024, 1024),), 104638, 0.15),
        (jnp.linalg.cholesky, (wide(512, 512),), 44576, 0.25),
        (jnp.linalg.qr, (wide(512, 256),), 45955, 0.25),
        (jnp.linalg.solve, (wide(512, 512), wide(512, 256)), 113094, 0.1),
    ],
)
def test_what_the_compiler_writes_out_counts(step: Any, args: tuple[Any, ...], cycles: int, near: float) -> None:
    assert estimate(step, *args).compute_s * CLOCK_HZ == pytest.approx(cycles, rel=near)


def test_complex_numbers_are_taken_apart() -> None:
    """Compiled for v5e: 321.89 MiB, of which 97 are parts."""
    numbers = Shape((4096, 4096), jnp.complex64)
    found = estimate(lambda a, b: (b @ a, jnp.conj(b)), numbers, numbers, split="_@d _")
    assert found.peak_bytes == pytest.approx(321.89 * MIB, rel=0.12)


def test_random_normals_are_made_where_they_are_added() -> None:
    """Compiled for v5e: 64.5 MiB and 357 thousand cycles; all bits on every device took 192 MiB."""
    key = Shape((2,), jnp.uint32)
    found = estimate(lambda a, b: b + jax.random.normal(a, b.shape), key, wide(8192, 4096), split="_@d _")
    assert found.peak_bytes == pytest.approx(64.5 * MIB, rel=0.02)
    assert found.compute_s * CLOCK_HZ == pytest.approx(359105, rel=0.15)


@pytest.mark.parametrize(
    ("step", "args", "mib", "code_mib"),
    [
        (jnp.fft.fft, (Shape((1024, 4096), jnp.complex64),), 70.6, 6.6),
        (jnp.fft.fft, (Shape((4096, 4096), jnp.complex64),), 516.2, 4.0),
        (jnp.fft.rfft, (wide(4096, 4096),), 323.7, 3.3),
        (jnp.fft.irfft, (Shape((4096, 2049), jnp.complex64),), 324.0, 3.6),
        (jnp.linalg.cholesky, (wide(1024, 1024),), 15.1, 6.9),
        (jnp.linalg.qr, (wide(512, 512),), 7.0, 4.0),
        (jax.scipy.linalg.lu_factor, (wide(1024, 1024),), 13.3, 5.3),
    ],
)
def test_what_is_written_out_takes_room(step: Any, args: tuple[Any, ...], mib: float, code_mib: float) -> None:
    """Compiled for v5e: a transform has parts side by side, a factor's kernels are written out for each 128 rows."""
    found = estimate(step, *args)
    assert found.peak_bytes == pytest.approx(mib * MIB, rel=0.05)
    assert found.memory.code_bytes == pytest.approx(code_mib * MIB, rel=0.45)


def test_products_of_complex_numbers_are_three() -> None:
    """Compiled for v5e: 3 kernels of 33024 cycles."""
    numbers = Shape((1024, 2048), jnp.complex64), Shape((2048, 1024), jnp.complex64)
    found = estimate(lambda a, b: a @ b, *numbers)
    assert found.compute_s * CLOCK_HZ == pytest.approx(99072, rel=0.2)


def test_what_has_no_cycles_takes_the_time_of_its_bytes() -> None:
    """A lookup that stands alone, and a sort along the rows: a step's time, though no part of its compute."""
    for found in (
        estimate(lambda a, b: a[b], wide(32768, 1024), Shape((16384,), jnp.int32)),
        estimate(lambda a: jnp.sort(a, 0), wide(4096, 2048)),
    ):
        assert found.step_time_s == found.compute_s + found.uncounted_s
        assert found.step_time_s > 10 * found.compute_s
