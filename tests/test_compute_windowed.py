"""Products that pass vector memory in windows, beside the TPU compiler's cycles of the same products alone."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import speed_of
from meshwright.planner.compute.cycles import cycles_of
from meshwright.planner.compute.products import Product
from meshwright.planner.compute.sides import LEFT, ONCE, RIGHT
from meshwright.planner.compute.work import Work

SIZES = {"f32": 4, "bf16": 2}


def cycles(
    name: str, shape: tuple[int, int, int], left: str, right: str, near: tuple[bool, bool], *, near_result: bool = False
) -> float:
    """Cycles of a float32 result of rows by depth by columns whose operands have these dtypes."""
    rows, depth, columns = shape
    product = Product(batch=1, rows=rows, columns=columns, depth=depth, passes=1, dtype="bf16")
    work = Work(
        kind="product",
        products=(product,),
        reads=(SIZES[left] * rows * depth, SIZES[right] * depth * columns),
        writes=(4 * rows * columns,),
        sides=(LEFT, RIGHT),
        result_bytes=4.0 * rows * columns,
    )
    speed = speed_of(catalogue()[name])
    return cycles_of(work, near, (near_result,), speed.edge, speed.coefficients).total


@pytest.mark.parametrize(
    ("name", "shape", "left", "right", "near", "counted"),
    [
        ("v5p", (4096, 3072, 4096), "f32", "f32", (False, False), 643_000),
        ("v5p", (4096, 3072, 4096), "f32", "bf16", (False, False), 536_000),
        ("v5p", (4096, 3072, 4096), "bf16", "bf16", (False, False), 473_000),
        ("v5p", (8192, 8192, 1024), "f32", "f32", (False, False), 814_000),
        ("v5p", (4096, 3072, 4096), "f32", "bf16", (False, True), 425_000),
        ("v6e", (4096, 3072, 4096), "f32", "f32", (False, False), 534_000),
        ("v6e", (4096, 3072, 4096), "bf16", "f32", (False, False), 405_000),
        ("v6e", (8192, 8192, 1024), "f32", "f32", (False, False), 636_000),
        ("v6e", (4096, 4096, 3072), "bf16", "bf16", (False, True), 224_000),
        ("v5e", (4096, 3072, 4096), "f32", "f32", (False, False), 1_452_000),
        ("v5e", (4096, 4096, 3072), "f32", "f32", (False, True), 829_000),
        ("v4", (8192, 8192, 1024), "f32", "bf16", (False, False), 1_173_000),
    ],
)
def test_operands_are_read_anew_for_each_piece_and_each_window_waits(
    name: str, shape: tuple[int, int, int], left: str, right: str, near: tuple[bool, bool], counted: int
) -> None:
    assert cycles(name, shape, left, right, near) == pytest.approx(counted, rel=0.12)


@pytest.mark.parametrize("name", ["v4", "v5e", "v5p", "v6e"])
def test_what_lies_in_vector_memory_never_makes_a_product_slower(name: str) -> None:
    shape = (2048, 2048, 4096)
    far, one, both = (cycles(name, shape, "f32", "f32", near) for near in ((False, False), (True, False), (True, True)))
    assert both <= one <= far


@pytest.mark.parametrize(
    ("name", "shape", "near", "near_result", "counted"),
    [
        ("v5e", (8, 128, 128), (False, False), False, 5746),
        ("v5e", (8, 128, 128), (False, True), False, 3880),
        ("v5e", (8, 128, 128), (False, True), True, 2070),
        ("v6e", (8, 128, 128), (False, False), False, 5599),
        ("v6e", (8, 128, 128), (False, True), False, 4364),
        ("v6e", (8, 128, 128), (False, True), True, 2260),
        ("v6e", (8, 128, 128), (True, True), True, 1060),
        ("v5p", (8, 128, 128), (False, False), False, 6624),
        ("v5p", (8, 128, 128), (False, True), False, 4476),
        ("tpu7x", (8, 128, 128), (False, True), False, 5620),
    ],
)
def test_small_products_wait_once_for_each_operand_and_for_the_result(
    name: str, shape: tuple[int, int, int], near: tuple[bool, bool], near_result: bool, counted: int
) -> None:
    assert cycles(name, shape, "f32", "f32", near, near_result=near_result) == pytest.approx(counted, rel=0.15)


def test_products_alone_read_the_common_memory_faster() -> None:
    """v4's, of two cores: fused operations take longer to leave something there (seen of its programs)."""
    shape, both, none = (2048, 2048, 1024), (True, True), (False, False)
    far, near = (cycles("v4", shape, "bf16", "f32", at, near_result=True) for at in (none, both))
    assert near == pytest.approx(77_450, rel=0.08)
    assert far > 1.05 * near
    speed, size = speed_of(catalogue()["v4"]), 8 << 20
    work = Work(kind="loop", reads=(size, size), writes=(size,))
    left, sent = (cycles_of(work, both, (at,), speed.edge, speed.coefficients).total for at in (True, False))
    assert left == pytest.approx(76_160, rel=0.08)
    assert sent == pytest.approx(58_000, rel=0.08)


@pytest.mark.parametrize(
    ("kib", "near", "near_results", "counted"),
    [
        (8192, (True, False, False, False), (True, False, False), 134_520),
        (8192, (True, True, False, False), (True, True, False), 134_520),
        (8192, (True, True, True, False), (True, True, True), 152_456),
        (1024, (True,) * 6, (True,) * 2, 25_530),
        (1024, (True,) * 2, (True,) * 2, 15_316),
    ],
)
def test_fused_operations_wait_for_the_common_memory_or_for_the_large_one(
    kib: int, near: tuple[bool, ...], near_results: tuple[bool, ...], counted: int
) -> None:
    """Adam's updates and others in programs compiled for v4, by the cycles there."""
    size = kib << 10
    work = Work(kind="loop", reads=(size,) * len(near), writes=(size,) * len(near_results))
    speed = speed_of(catalogue()["v4"])
    assert cycles_of(work, near, near_results, speed.edge, speed.coefficients).total == pytest.approx(counted, rel=0.1)


@pytest.mark.parametrize(
    ("shape", "counted"),
    [
        ((2048, 256, 4096), 152_648),
        ((4096, 128, 1024), 76_548),
        ((4096, 128, 256), 20_630),
        ((1024, 512, 2048), 42_796),
        ((1024, 512, 4096), 80_984),
    ],
)
def test_products_take_longer_to_leave_something_in_the_common_memory(
    shape: tuple[int, int, int], counted: int
) -> None:
    """Their cycles where both operands and the result lie in v4's: the shallow ones wait for what they write."""
    assert cycles("v4", shape, "f32", "f32", (True, True), near_result=True) == pytest.approx(counted, rel=0.12)


def test_an_update_of_weights_that_are_near_waits_for_what_it_reads_alone_on_v6e() -> None:
    """As compiled: of eight products of 512 by 1024 and 1024, Adam's update of 33 MB each, in 77617 cycles where the
    weights are left near, though what is kept of their gradients is not.
    """
    size, side = 4 * 8 * 1024**2, 2 * 8 * 512 * 1024
    product = Product(batch=8, rows=1024, columns=1024, depth=512, passes=1, dtype="bf16")
    work = Work(
        kind="product",
        products=(product,),
        reads=(size, size, size, side, side),
        writes=(size, size, size),
        sides=(ONCE, ONCE, ONCE, LEFT, RIGHT),
        flops=2.0 * product.multiply_adds,
        result_bytes=4.0 * 1024**2,
    )
    speed = speed_of(catalogue()["v6e"])
    took = [
        cycles_of(work, (True, False, False, True, True), (left, False, False), speed.edge, speed.coefficients).total
        for left in (True, False)
    ]
    reading = 2 * size * speed.coefficients.byte_cycles
    assert reading <= took[0] == pytest.approx(77617, rel=0.4)
    assert took[1] > took[0] + reading
