"""What few images in parts take beside themselves: copies for convolutions that cut them anew, and for gradients."""

from __future__ import annotations

import pytest
from meshwright.planner.cut_images import cut_anew
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.memory.tensors.convolved import copied_whole, laid_bytes, sources_of
from meshwright.planner.memory.tensors.cut_anew import copies_cut_anew, given_parts
from meshwright.planner.memory.tensors.temporaries import temporary_bytes
from programs import CONVOLVED, KERNEL_GRADIENT, of_ops

FEW, SINGLE = 8, 2
LANES, NARROW_BYTES, PARTS = 128, 2, 8
ROW_BYTES = LANES * NARROW_BYTES


def net(edge: int, *, step: int, dtype: str, rectified: str = "inside") -> Program:
    """Two images of so many places a side convolved, rectified and convolved again by so many places a step, and the
    gradient of the second kernel. What is rectified is computed ``inside`` of both that read it, or ``written``.
    """
    image, first = Value((2, edge, edge, 64), "f32"), Value((2, edge, edge, 64), dtype)
    kernel, rounded = Value((3, 3, 64, 64), "bf16"), Value((2, edge, edge, 64), "bf16")
    last = Value((2, edge // step, edge // step, 64), "bf16")
    moving = {"window_strides": (step, step), "padding": ((2 - step, 1),) * 2}
    back = KERNEL_GRADIENT | {"rhs_dilation": (step, step), "padding": ((2 - step, 1),) * 2}
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=CONVOLVED),
        Op(kind="tanh", operands=(2,), results=(3,)),
        Op(kind="convolution", operands=(3, 1), results=(4,), attributes=CONVOLVED | moving),
        Op(kind="convolution", operands=(3, 4), results=(5,), attributes=back),
    )
    graph = Graph(values=(image, kernel, first, rounded, last, kernel), ops=ops, arguments=(0, 1), results=(5,))
    if rectified == "written":
        return of_ops(graph.values, ops, (0, 1), (5,))
    kernels = (
        Kernel(ops=(0,), reads=(0, 1), writes=(2,)),
        Kernel(ops=(1, 2), reads=(2, 1), writes=(4,)),
        Kernel(ops=(1, 3), reads=(2, 4), writes=(5,)),
    )
    return Program(graph=graph, kernels=kernels)


@pytest.mark.parametrize(("edge", "step", "smallest", "found"), [(256, 2, FEW, 1), (256, 1, FEW, 0), (56, 2, FEW, 0)])
def test_steps_begin_at_other_places_than_parts_with_margins(edge: int, step: int, smallest: int, found: int) -> None:
    """As compiled for v5p: parts of 33 places are cut into others of 32, those of 7 places and a margin, 8, are not."""
    assert len(cut_anew(net(edge, step=step, dtype="f32").graph, smallest)) == found
    assert not cut_anew(net(edge, step=step, dtype="f32").graph, SINGLE)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_is_cut_anew_lies_there_until_then_and_for_the_gradient(dtype: str) -> None:
    """As compiled for v5p and v6e: a convolution leaves bf16[256,16,33,64] twice beside what it is computed of; the
    next one reads the first, the gradient of its kernel the second, each while it is put together.
    """
    program = net(256, step=2, dtype=dtype)
    found = list(copies_cut_anew(program, FEW, sources_of(program.graph), laid_bytes(program, FEW)))
    assert [(each.value, each.span) for each in found] == [(2, (0, 1)), (2, (1, 1)), (2, (0, 2)), (2, (2, 2))]
    assert {each.num_bytes for each in found} == {256 * 2 * PARTS * 33 * ROW_BYTES}
    itself = Value((2, 256, 256, 64), dtype).bits // 8 * 256 * 2 * PARTS * 33 * LANES
    assert temporary_bytes(program)(program.graph, 2) == itself


def test_an_image_in_bfloat16_is_its_own_copy_for_the_gradient() -> None:
    program = net(256, step=2, dtype="bf16", rectified="written")
    found = copies_cut_anew(program, FEW, sources_of(program.graph), laid_bytes(program, FEW))
    assert [(each.value, each.span) for each in found] == [(3, (1, 2)), (3, (2, 2)), (3, (3, 3))]


@pytest.mark.parametrize(("dtype", "rectified", "lies"), [("f32", 2, 4), ("bf16", 2, 3), ("bf16", 3, 2)])
def test_what_is_convolved_in_its_own_parts_lies_twice_beside_what_it_is_made_of(
    dtype: str, rectified: int, lies: int
) -> None:
    """As compiled for v5p and v6e: f32[256,16,33,64] and bf16[256,16,33,64] twice, all of bfloat16 three times; what
    convolutions read itself is one of two.
    """
    program = net(256, step=1, dtype=dtype, rectified="written" if rectified == 3 else "inside")
    part_bytes = 256 * 2 * PARTS * 33 * ROW_BYTES
    assert temporary_bytes(program)(program.graph, rectified) == lies * part_bytes


def test_an_image_that_a_step_is_given_is_read_in_parts_with_margins() -> None:
    """As compiled for v5p: bf16[256,2,8,35,64], each part with two places of the next one."""
    program = net(256, step=1, dtype="f32")
    (found,) = given_parts(program, FEW, laid_bytes(program, FEW))
    assert found == (0, (0, 0), 256 * 2 * PARTS * 35 * ROW_BYTES)
    assert not list(given_parts(program, SINGLE, laid_bytes(program, SINGLE)))


@pytest.mark.parametrize(("smallest", "copies"), [(FEW, 2), (SINGLE, 0)])
def test_what_a_step_rounds_is_read_whole_for_the_gradient_of_a_kernel(smallest: int, copies: int) -> None:
    """As compiled for v5p and v6e: bf16[2,256,256,64]{3,0,2,1:T(2,128)} of a batch that is rounded first."""
    image, rounded, kernel = (
        Value((2, 256, 256, 64), "f32"),
        Value((2, 256, 256, 64), "bf16"),
        Value((3, 3, 64, 64), "f32"),
    )
    ops = (
        Op(kind="convert", operands=(0,), results=(2,)),
        Op(kind="convolution", operands=(2, 1), results=(3,), attributes=KERNEL_GRADIENT),
    )
    program = of_ops((image, rounded, rounded, kernel), ops, (0, 1), (3,))
    found = list(copied_whole(program, smallest, early=False))
    assert [each.num_bytes for each in found] == [2 * 256 * 256 * ROW_BYTES] * copies
