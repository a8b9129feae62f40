"""What few images in parts take that are normed."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import speed_of
from meshwright.planner.compute.cycles import cycles_of
from meshwright.planner.compute.images.parted import EDGED, NORMED_EDGED, steps_cycles
from meshwright.planner.compute.price import price
from meshwright.planner.compute.work import LOOP, Work
from meshwright.planner.fusion import fuse
from programs import CONVOLVED
from test_fusion import Writer

PARTS, TOGETHER = 128 * 32 * 17 * 128 * 4, 128 * 4 * 136 * 64 * 4


@pytest.mark.parametrize(
    ("reads", "near", "makes", "near_made", "us"),
    [
        (PARTS, True, TOGETHER, True, 1.1),
        (PARTS, False, TOGETHER, True, 69.9),
        (TOGETHER, True, PARTS, False, 69.9),
        (TOGETHER, False, PARTS, False, 114.4),
    ],
)
def test_copies_between_images_and_parts_wait_for_memory_on_either_side(
    reads: int, makes: int, us: float, *, near: bool, near_made: bool
) -> None:
    """f32[128,32,17,64] and f32[128,4,136,64] as compiled for v5e."""
    speed = speed_of(catalogue()["v5e"])
    work = Work(kind=LOOP, reads=(reads,), writes=(makes,), turns=True)
    took = cycles_of(work, (near,), (near_made,), speed.edge, speed.coefficients).total
    assert took / speed.clock_hz * 1e6 == pytest.approx(us, rel=0.03 if us > 2 else 0.3)


def test_what_is_normed_by_all_images_has_its_edges_put_beside_it() -> None:
    """As compiled for v5e: 19 us of bf16[128,32,17,64], where whole passes over it take 40 us each."""
    speed, numbers = speed_of(catalogue()["v5e"]), PARTS // 4
    edges, passes = (
        steps_cycles(steps, numbers, 4.0, speed.coefficients) / speed.clock_hz * 1e6 for steps in (NORMED_EDGED, EDGED)
    )
    assert edges < passes / 4


def test_few_images_on_v3_are_moved_as_registers_that_they_leave_empty() -> None:
    """f32[4,64,64,64] reduced of batch norm: 62.3 us as compiled for v3."""
    w = Writer()
    whole, kernel = (4, 64, 64, 64), w.arg(3, 3, 64, 64)
    image = w.op("convolution", w.arg(*whole), kernel, shape=whole, **CONVOLVED)
    mean = w.spread(w.total(image, 0, 1, 2), *whole, dims=(3,))
    apart = w.op("subtract", image, mean)
    program = fuse(w.graph(w.total(w.op("multiply", apart, apart), 0, 1, 2)), near_bytes=0)
    prices = price(program, catalogue()["v3"])
    last = next(
        each for each in prices if program.graph.ops[each.kernel.ops[0]].kind != "convolution" and each.seconds > 1e-5
    )
    assert last.seconds * 1e6 == pytest.approx(62.3, rel=0.2)
