"""What images take in time that loops convolve piece by piece."""

from __future__ import annotations

from dataclasses import replace

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute.convolved import Convolved
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.compute.work import work_of
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel
from programs import CONVOLVED, KERNEL_GRADIENT

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


def ring(kind: str, batch: int, entering: int, leaving: int) -> float:
    """The cycles of one convolution in a ring, of 64x64 places: features of two devices enter it, or leave."""
    values = (
        Value((batch, 64, 64, entering), "bf16"),
        Value((3, 3, entering, leaving), "bf16"),
        Value((batch, 64, 64, leaving), "bf16"),
    )
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=CONVOLVED)
    graph = Graph(values=values, ops=(op,), arguments=(0, 1), results=(2,))
    speed = speed_of(catalogue()[kind])
    images = Convolved(graph, speed.coefficients, speed.edge, in_loop=True)
    (product,) = images.counted(
        Kernel(ops=(0,), reads=(0, 1), writes=(2,)), work_of(graph, fuse(graph).kernels[0])
    ).products
    return product.vector_operations(speed.coefficients) * speed.coefficients.register_cycles


@pytest.mark.parametrize(
    ("kind", "entering", "leaving", "cycles"),
    [("v4", 64, 8, 113_050), ("v4", 8, 64, 95_497), ("v5e", 64, 8, 104_012), ("v6e", 64, 8, 43_218)],
)
def test_few_images_in_a_ring_take_as_long_however_few(kind: str, entering: int, leaving: int, cycles: int) -> None:
    """As compiled, with the two devices' features as places of one more dim."""
    took = [ring(kind, batch, entering, leaving) for batch in (1, 2, 4)]
    assert took[0] == took[1] == took[2] == pytest.approx(cycles, rel=0.15)
