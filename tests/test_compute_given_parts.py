"""Devices' parts of images that are a step's argument, as kernels cut them out and convolutions have them laid out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute.apart import Apart
from meshwright.planner.compute.cycles import cycles_of
from meshwright.planner.compute.images.convolved import Convolved
from meshwright.planner.compute.images.given_parts import GivenParts, laid_as
from meshwright.planner.compute.price import price_at
from meshwright.planner.compute.single_ops import packing_seconds
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.compute.work import work_of
from meshwright.planner.fusion import fuse
from meshwright.planner.kernels import Kernel, Program
from programs import CONVOLVED, KERNEL_GRADIENT
from test_fusion import Writer

WHOLE, PART, WEIGHTS = (32, 256, 256, 64), (8, 256, 32, 64), (3, 3, 64, 64)


def test_a_part_is_cut_once_for_all_convolutions_as_the_argument_lies_and_laid_out_then() -> None:
    """As compiled for v3: 376 thousand cycles for ``bf16[8,256,32,64]``, 32 of 256 columns on the lanes, and 240 for a
    copy of that.
    """
    g, speed = Writer(), speed_of(catalogue()["v3"])
    part = g.op("dynamic_slice", g.arg(*WHOLE), g.scalar(0.0), shape=PART, axes=("x", "y"))
    made = [g.op("convolution", part, g.arg(*WEIGHTS), shape=PART, **CONVOLVED)]
    made.append(g.op("convolution", part, g.arg(*PART), shape=WEIGHTS, **KERNEL_GRADIENT))
    program = fuse(g.graph(*made))
    graph, (cut, first, other) = program.graph, program.kernels
    images = Convolved(graph, speed.coefficients, speed.edge, given=graph.arguments)
    works = [images.counted(each, work_of(graph, each)) for each in program.kernels]
    took = cycles_of(works[0], [False] * len(cut.reads), (False,), speed.edge, speed.coefficients)
    assert took.total == pytest.approx(376e3, rel=0.02)
    assert images.copies_cycles(first) == pytest.approx(240e3, rel=0.05)
    assert images.copies_cycles(replace(other, reads=cut.writes)) == 0


def test_parts_that_one_kernel_cuts_are_each_counted() -> None:
    g = Writer()
    image, edge = g.arg(*WHOLE), (*WHOLE[:1], 1, *WHOLE[2:])
    begin = g.arg()
    graph = g.graph(*(g.op("dynamic_slice", image, begin, shape=edge, axes=("x", "y")) for _ in range(2)))
    kernel = Kernel(ops=(0, 1), reads=(image, begin), writes=graph.results)
    both = GivenParts(graph, graph.arguments).counted(kernel, work_of(graph, kernel))
    one = GivenParts(graph, graph.arguments).counted(
        replace(kernel, ops=(0,), writes=graph.results[:1]), work_of(graph, kernel)
    )
    assert both.writes == one.writes * 2
    assert sum(both.reads) == 2 * sum(one.reads)


def test_a_part_of_a_gain_is_no_part_of_the_image_that_it_multiplies() -> None:
    """Split channels have each device cut out its own of a gain that lies whole (a U-Net's group norms)."""
    g, speed = Writer(), speed_of(catalogue()["v5e"])
    gain = g.op("dynamic_slice", g.arg(128), g.scalar(0.0), shape=(64,), axes=("x",))
    scaled = g.op("multiply", g.arg(*PART), g.spread(gain, *PART, dims=(3,)))
    program = fuse(g.graph(g.op("convolution", scaled, g.arg(*WEIGHTS), shape=PART, **CONVOLVED)))
    graph, (cut, convolved) = program.graph, program.kernels
    images = Convolved(graph, speed.coefficients, speed.edge, given=graph.arguments)
    assert all(images.counted(each, work_of(graph, each)) for each in (cut, convolved))
    assert images.copies_cycles(convolved) > 0  # of the image


def test_a_part_lies_as_the_argument_pads_less() -> None:
    """Columns on the lanes, where features fill half of them; else features."""
    assert laid_as(WHOLE, PART) == 8 * 256 * 128 * 64
    assert laid_as((32, 256, 256, 128), (8, 256, 32, 128)) == 8 * 256 * 32 * 128


def test_what_a_kernel_apart_packs_takes_as_long_beside_a_number_that_it_is_compared_with() -> None:
    """A number that a kernel is handed is no product's, which would leave the bits."""
    g, speed = Writer(), speed_of(catalogue()["v3"])
    image = g.arg(*PART)
    graph = g.graph(g.op("compare", image, g.spread(g.arg(), *PART), dtype="pred"))
    kernel = Kernel(ops=(0, 1), reads=graph.arguments, writes=graph.results)
    (took,) = price_at(Program(graph=graph, kernels=(kernel,)), speed, apart=Apart(packed=(image,)))
    assert took.seconds == pytest.approx(packing_seconds(graph.values[image], {}, speed), rel=0.05)


def test_a_product_that_makes_bits_of_what_it_writes_takes_no_reduction() -> None:
    """As compiled for v3 to v6e: two results at most of a convolution that packs; else sums are added up with it."""
    for is_masked in (True, False):
        g = Writer()
        nothing = g.spread(g.scalar(0.0), *PART)
        made = g.op("convolution", g.op("tanh", g.arg(*PART)), g.arg(*WEIGHTS), shape=PART, **CONVOLVED)
        summed = g.op("reduce", g.op("multiply", made, made), g.scalar(0.0), shape=(), dimensions=(0, 1, 2, 3))
        back = g.op("convolution", g.arg(*PART), g.arg(*WEIGHTS), shape=PART, **CONVOLVED)
        mask = g.op("compare", made, nothing, dtype="pred")
        masked = g.op("select", mask, back, nothing, dtype="f32")
        ends = [g.op("convolution", masked, g.arg(*WEIGHTS), shape=PART, **CONVOLVED) for _ in range(2)]
        program = fuse(g.graph(summed, made, *(ends if is_masked else ())))
        (kernel,) = (each for each in program.kernels if made in each.writes)
        assert (summed in kernel.writes) == (not is_masked)
