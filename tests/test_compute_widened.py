"""Parts of few images that are widened for windows of one place: kernels go through them as they lie, or in pieces."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute.images.parted import rounds_of, widened_cycles
from meshwright.planner.compute.manner import manner_of
from meshwright.planner.compute.speed import speed_of

NUMBERS = 1 << 20


@pytest.mark.parametrize(("kind_of_chip", "size", "compiled"), [
    ("v6e", 2, 101_250),
    ("v6e", 4, 271_572),
    ("v6e", 8, 783_816),
    ("v6e", 16, 2_102_732),
    ("v5e", 1, 119_518),
    ("v5e", 4, 462_140),
])  # fmt: skip
def test_widening_parts_takes_as_long_as_compiled(kind_of_chip: str, size: int, compiled: int) -> None:
    """The cycles of all kernels that do, of strides of two: masks, what is made, and copies cut off again."""
    of = speed_of(catalogue()[kind_of_chip]).coefficients
    took = widened_cycles(size * NUMBERS, manner_of(of).part_operations, of)
    assert took == pytest.approx(compiled, rel=0.4)


def test_larger_images_are_looped_over() -> None:
    assert [rounds_of(size * NUMBERS) // NUMBERS for size in (2, 4, 5)] == [12, 16, 0]
