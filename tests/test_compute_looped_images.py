"""What images take in time that loops convolve piece by piece."""

from __future__ import annotations

from dataclasses import replace

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute.images.convolved import Convolved
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.compute.work import work_of
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel
from programs import CONVOLVED, KERNEL_GRADIENT
from test_compute import convolved

TURNS = 4


def looped(batch: int, size: int, *, gradient: bool = False) -> Graph:
    """A loop that takes two features of two devices each turn of an image of 32, which is rectified first."""
    image, part = Value((batch, size, size, 32), "f32"), Value((batch, size, size, 4), "f32")
    kernel, other = (Value((3, 3, 4, 32), "f32"), image) if gradient else (image, Value((3, 3, 4, 32), "f32"))
    made = (kernel, other)
    inner = (
        Op(kind="dynamic_slice", operands=(0,), results=(3,), attributes={"step": 0}),
        Op(kind="convolution", operands=(3, 1), results=(4,), attributes=KERNEL_GRADIENT if gradient else CONVOLVED),
    )
    body = Graph(values=(image, other, made[0], part, made[0]), ops=inner, arguments=(0, 1, 2), results=(4,))
    ops = (
        Op(kind="tanh", operands=(0,), results=(3,)),
        Op(kind="while", operands=(3, 1, 2), results=(4,), bodies=(body,), trips=TURNS),
    )
    return Graph(values=(image, other, made[0], image, made[0]), ops=ops, arguments=(0, 1, 2), results=(4,))


def known(graph: Graph, kind: str) -> Convolved:
    speed = speed_of(catalogue()[kind])
    return Convolved(graph, speed.coefficients, speed.edge)


@pytest.mark.parametrize(("batch", "size", "growth"), [(4, 128, 32), (2, 256, 4)])
def test_what_is_computed_of_them_passes_as_they_lie(batch: int, size: int, growth: int) -> None:
    """As compiled for v6e: of four images of two features a device f32[4,128,128,32] takes 256 MiB, of two 4 times."""
    graph = looped(batch, size)
    kernel = Kernel(ops=(0,), reads=(0,), writes=(3,))
    plain = work_of(graph, kernel)
    work = known(graph, "v6e").counted(kernel, plain)
    assert [new / old for new, old in zip(work.writes, plain.writes, strict=True)] == [growth]


def test_a_gradient_waits_for_a_copy_with_the_batch_on_the_lanes() -> None:
    """As compiled for v6e: bf16[2,256,256,32] is copied into 512 MiB in 3.4 million cycles, once a loop."""
    graph = looped(2, 256, gradient=True)
    images = known(graph, "v6e")
    kernel = Kernel(ops=(0,), reads=(0,), writes=(3,))
    assert images.copies_cycles(kernel) == 0
    images.looped(graph.ops[1])
    assert images.copies_cycles(kernel) == pytest.approx(3.4e6, rel=0.2)
    assert images.copies_cycles(kernel) == 0
    images.looped(replace(graph.ops[1], trips=1))
    assert images.copies_cycles(kernel) == 0


def ring(kind: str, batch: int, entering: int, leaving: int, *, size: int = 64, window: int = 3) -> float:
    """The cycles of one convolution in a ring, of 64x64 places: features of two devices enter it, or leave."""
    images = Value((batch, size, size, entering), "bf16"), Value((batch, size, size, leaving), "bf16")
    kernel = Value((window, window, entering, leaving), "bf16")
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=CONVOLVED)
    return squares_or_vectors(
        kind, Graph(values=(images[0], kernel, images[1]), ops=(op,), arguments=(0, 1), results=(2,))
    )


def gradient(kind: str, batch: int, entering: int, leaving: int, *, size: int, window: int) -> float:
    """The same of the gradient of a kernel: of what comes back two devices' features leave."""
    images = Value((batch, size, size, entering), "bf16"), Value((batch, size, size, leaving), "bf16")
    kernel = Value((window, window, entering, leaving), "f32")
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=KERNEL_GRADIENT)
    return squares_or_vectors(kind, Graph(values=(*images, kernel), ops=(op,), arguments=(0, 1), results=(2,)))


def squares_or_vectors(kind: str, graph: Graph) -> float:
    """Cycles of the slower one of a convolution's matrix and vector units, in a loop."""
    speed = speed_of(catalogue()[kind])
    images = Convolved(graph, speed.coefficients, speed.edge, in_loop=True)
    kernel = Kernel(ops=(0,), reads=(0, 1), writes=(2,))
    (product,) = images.counted(kernel, work_of(graph, fuse(graph).kernels[0])).products
    vectors = product.vector_operations(speed.coefficients) * speed.coefficients.register_cycles
    return max(vectors, product.padded(speed.edge) * speed.coefficients.multiply_add_cycles)


@pytest.mark.parametrize(
    ("kind", "entering", "leaving", "cycles"),
    [("v4", 64, 8, 113_050), ("v4", 8, 64, 95_497), ("v5e", 64, 8, 104_012), ("v6e", 64, 8, 43_218)],
)
def test_few_images_in_a_ring_take_as_long_however_few(kind: str, entering: int, leaving: int, cycles: int) -> None:
    """As compiled, with the two devices' features as places of one more dim."""
    took = [ring(kind, batch, entering, leaving) for batch in (1, 2, 4)]
    assert took[0] == took[1] == took[2] == pytest.approx(cycles, rel=0.15)


@pytest.mark.parametrize(
    ("kind", "batch", "size", "window", "entering", "leaving", "cycles"),
    [
        ("v5e", 4, 128, 5, 64, 8, 837_720),
        ("v5e", 4, 128, 5, 8, 128, 425_240),
        ("v5e", 4, 128, 5, 64, 4, 1_660_848),  # the batch on the lanes
        ("v5e", 4, 64, 3, 64, 4, 157_616),
        ("v5e", 4, 32, 1, 64, 4, 22_960),
        ("v6e", 4, 32, 3, 64, 4, 19_456),
        ("v6e", 4, 32, 3, 4, 64, 17_408),
        ("v6e", 4, 64, 1, 4, 32, 69_632),
        ("v5e", 4, 128, 5, 4, 64, 451_968),
        ("v6e", 2, 32, 5, 64, 8, 26_624),
        ("v6e", 1, 64, 1, 32, 16, 23_096),
        ("v5p", 1, 64, 1, 32, 16, 49_853),
        ("v5p", 4, 64, 3, 64, 32, 51_309),
        ("v5p", 4, 64, 3, 32, 128, 31_160),
    ],
)
def test_a_ring_streams_registers_of_few_images_through_squares(
    kind: str, batch: int, size: int, window: int, entering: int, leaving: int, cycles: int
) -> None:
    """As compiled, of 5x5 windows and of one place too."""
    assert ring(kind, batch, entering, leaving, size=size, window=window) == pytest.approx(cycles, rel=0.15)


@pytest.mark.parametrize(
    ("kind", "batch", "size", "window", "entering", "leaving", "cycles"),
    [
        ("v5e", 4, 128, 5, 128, 16, 134_526),
        ("v5e", 4, 128, 5, 64, 4, 1_654_934),  # the batch on the lanes
        ("v5e", 4, 64, 3, 64, 8, 157_455),  # there too: both ways pad alike
        ("v6e", 4, 32, 3, 64, 4, 19_456),
        ("v6e", 2, 32, 5, 64, 8, 4_449),
    ],
)
def test_a_ring_streams_what_comes_back_as_it_lies(
    kind: str, batch: int, size: int, window: int, entering: int, leaving: int, cycles: int
) -> None:
    assert gradient(kind, batch, entering, leaving, size=size, window=window) == pytest.approx(cycles, rel=0.2)


def test_an_image_with_gaps_and_its_batch_on_the_lanes_fills_no_depth() -> None:
    """As compiled for v5e: bf16[4,128,128,64], two features a device, is convolved to f32[4,256,256,64]."""
    image, made = Value((4, 128, 128, 4), "bf16"), Value((4, 256, 256, 64), "bf16")
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes={**CONVOLVED, "lhs_dilation": (2, 2)})
    values = (image, Value((3, 3, 4, 64), "bf16"), made)
    cycles = squares_or_vectors("v5e", Graph(values=values, ops=(op,), arguments=(0, 1), results=(2,)))
    assert cycles == pytest.approx(4_753_781, rel=0.1)


@pytest.mark.parametrize(
    ("kind", "window", "entering", "leaving", "cycles"),
    [
        ("v6e", 3, 32, 32, 37_887),  # the kernel is brought to the squares
        ("v6e", 3, 16, 64, 21_105),  # 19460 and, with what was added up before, 22750
        ("v6e", 1, 32, 32, 8_365),  # 5810 and 10920
        ("v5e", 3, 16, 32, 50_790),
    ],
)
def test_a_ring_brings_the_kernel_of_images_with_gaps_to_the_squares_at_each_tap(
    kind: str, window: int, entering: int, leaving: int, cycles: int
) -> None:
    """As compiled, of two images of 32x32 places between which gaps are put."""
    image, made = Value((2, 32, 32, entering), "bf16"), Value((2, 64, 64, leaving), "bf16")
    kernel = Value((window, window, entering, leaving), "bf16")
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes={**CONVOLVED, "lhs_dilation": (2, 2)})
    graph = Graph(values=(image, kernel, made), ops=(op,), arguments=(0, 1), results=(2,))
    assert squares_or_vectors(kind, graph) == pytest.approx(cycles, rel=0.06)


@pytest.mark.parametrize(("gradient", "cycles"), [(False, 2_475_054), (True, 1_122_229)])
def test_pictures_whose_few_features_go_round_a_ring_share_no_depth(gradient: bool, cycles: int) -> None:
    """A stem of 64 features over 16 devices, of which a turn makes four of each of two, as compiled for v5e."""
    speed = speed_of(catalogue()["v5e"])
    images, made, kernel = (8, 224, 224, 3), (8, 112, 112, 8), (7, 7, 3, 8)
    graph = convolved(images, made if gradient else kernel, kernel if gradient else made, gradient=gradient)
    op = graph.ops[0]
    said = {**op.attributes, "rhs_dilation" if gradient else "window_strides": (2, 2)}
    strided = replace(graph, ops=(replace(op, attributes=said),))
    looped_there = Convolved(strided, speed.coefficients, speed.edge, in_loop=True)
    assert looped_there.units_cycles(strided.ops[0]) == pytest.approx(cycles, rel=0.03)
