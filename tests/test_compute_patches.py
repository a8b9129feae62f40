"""What copies take that pictures need before they are seen as patches."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.compute.copies.patches import Patches
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.fusion import fuse
from meshwright.planner.kernels import Kernel
from test_fusion import Writer

SIZE, SIDE, FEATURES = 224, 16, 3
ORDER = (0, 1, 3, 2, 4, 5)


def patched(batch: int, *, order: tuple[int, ...] = ORDER) -> tuple[Writer, list[int]]:
    """Two products of the patches of so many pictures, an argument."""
    w, many = Writer(), SIZE // SIDE
    parts = w.op("reshape", w.arg(batch, SIZE, SIZE, FEATURES), shape=(batch, many, SIDE, many, SIDE, FEATURES))
    moved = w.op("transpose", parts, shape=(batch, many, many, SIDE, SIDE, FEATURES), permutation=order)
    patches = w.op("reshape", moved, shape=(batch * many**2, SIDE**2 * FEATURES))
    return w, [w.dot(patches, w.arg(SIDE**2 * FEATURES, columns)) for columns in (256, 768)]


@pytest.mark.parametrize(
    ("chip", "batch", "cycles"),
    [
        ("v3", 32, 258594 + 383232 + 317343),
        ("v3", 8, 231008),
        ("v4", 32, 264936 + 382712 + 244101),
        ("v4", 8, 132608),
        ("v5e", 32, 124572 + 484304 + 3900),
        ("v5e", 8, 3200),
        ("v5p", 32, 164052 + 153120 + 172242),
        ("v6e", 32, 115920 + 449664 + 3900),
    ],
)
def test_pictures_are_copied_once_for_all_that_read_their_patches(chip: str, batch: int, cycles: int) -> None:
    """As compiled, of float32 pictures."""
    w, made = patched(batch)
    graph, speed = w.graph(*made), speed_of(catalogue()[chip])
    every = Kernel(ops=tuple(range(len(graph.ops))), reads=graph.arguments, writes=graph.results)
    patches = Patches(graph, speed.coefficients)
    assert patches.copies_cycles(every) == pytest.approx(cycles, rel=0.2)
    assert patches.copies_cycles(every) == 0


def test_copies_of_patches_are_part_of_what_a_step_takes_and_views_are_not() -> None:
    took = {}
    for order in (ORDER, tuple(range(6))):
        w, made = patched(32, order=order)
        took[order] = sum(each.cycles for each in price(fuse(w.graph(*made)), catalogue()["v5e"]) if each.counted)
    assert took[ORDER] - took[tuple(range(6))] == pytest.approx(6e5, rel=0.2)
