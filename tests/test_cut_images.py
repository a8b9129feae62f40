"""Which convolutions XLA cuts images for, as seen in compiled programs."""

from __future__ import annotations

import pytest
from meshwright.planner.cut_images import (
    cut_convolutions,
    has_whole_steps,
    is_gradient_cut,
    parts_of,
)
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.image_sources import comes_back_whole
from programs import CONVOLVED, KERNEL_GRADIENT

FEW = 8


def convolved(
    size: int, made: int, batch: int, window: int, padding: tuple[int, int], **said: tuple[int, int]
) -> Graph:
    """One convolution of images of so many places a side into images of ``made`` places."""
    values = (
        Value((batch, size, size, 64), "bf16"),
        Value((window, window, 64, 64), "bf16"),
        Value((batch, made, made, 64), "bf16"),
    )
    attributes = CONVOLVED | {"padding": (padding, padding)} | said
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=attributes)
    return Graph(values=values, ops=(op,), arguments=(0, 1), results=(2,))


def is_cut(graph: Graph) -> bool:
    return bool(cut_convolutions(graph, FEW))


@pytest.mark.parametrize(
    ("size", "batch", "window", "cut"), [(32, 7, 3, True), (32, 8, 3, False), (16, 1, 3, True), (56, 1, 1, True)]
)
def test_few_images_are_cut_however_small(size: int, batch: int, window: int, *, cut: bool) -> None:
    """As compiled for v5p and v6e."""
    assert is_cut(convolved(size, size, batch, window, (window // 2, window // 2))) == cut


def test_a_part_has_room_for_what_the_one_before_it_reads() -> None:
    assert not is_cut(convolved(24, 24, 4, 7, (3, 3)))
    assert is_cut(convolved(48, 48, 4, 7, (3, 3)))


@pytest.mark.parametrize(("size", "window", "padding", "cut"), [(28, 3, (2, 1), True), (14, 3, (2, 1), False)])
def test_images_with_gaps_are_cut_where_there_are_enough_of_them(
    size: int, window: int, padding: tuple[int, int], *, cut: bool
) -> None:
    """Gradients of 3x3 windows that move on by two, as compiled for v4 and v6e."""
    assert is_cut(convolved(size, 2 * size, 4, window, padding, lhs_dilation=(2, 2))) == cut


def test_images_with_gaps_behind_wider_margins_are_not_cut() -> None:
    assert not is_cut(convolved(32, 64, 1, 5, (3, 2), lhs_dilation=(2, 2)))


def test_one_that_could_not_begin_follows() -> None:
    """As compiled for v4: a convolution makes 14 places of 28, the next 7 of those."""
    assert not is_cut(convolved(14, 7, 4, 3, (0, 1), window_strides=(2, 2)))
    first = convolved(28, 14, 4, 3, (0, 1), window_strides=(2, 2))
    values = (*first.values, Value((4, 7, 7, 64), "bf16"))
    second = Op(kind="convolution", operands=(2, 1), results=(3,), attributes=first.ops[0].attributes)
    both = Graph(values=values, ops=(*first.ops, second), arguments=(0, 1), results=(3,))
    assert set(cut_convolutions(both, FEW)) == {2, 3}


@pytest.mark.parametrize(("size", "cut"), [(56, True), (64, False), (128, False)])
def test_the_gradient_of_a_kernel_with_strides_is_cut_where_parts_fit(size: int, *, cut: bool) -> None:
    """As compiled for v4 and v6e: margins make parts of 64 places 9 long, where windows begin at 4."""
    image, half = Value((4, size, size, 64), "bf16"), Value((4, size // 2, size // 2, 64), "bf16")
    kernel = Value((3, 3, 64, 64), "bf16")
    strided = CONVOLVED | {"padding": ((0, 1), (0, 1)), "window_strides": (2, 2)}
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=CONVOLVED),
        Op(kind="convolution", operands=(2, 1), results=(3,), attributes=strided),
        Op(kind="convolution", operands=(2, 3), results=(4,), attributes=KERNEL_GRADIENT | {"rhs_dilation": (2, 2)}),
    )
    graph = Graph(values=(image, kernel, image, half, kernel), ops=ops, arguments=(0, 1), results=(4,))
    assert is_gradient_cut(graph, ops[2], parts_of(graph, cut_convolutions(graph, FEW))) == cut


@pytest.mark.parametrize(("gap", "cut"), [(1, True), (2, False), (8, False)])
def test_the_gradient_of_a_kernel_with_gaps_is_of_whole_images(gap: int, *, cut: bool) -> None:
    """Convolutions over a row of 1024 places, as compiled for v4."""
    line = Value((2, 8, 1024, 64), "bf16")
    said = CONVOLVED | {"padding": ((1, 1), (gap, gap)), "rhs_dilation": (1, gap)}
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=said),
        Op(
            kind="convolution", operands=(0, 2), results=(3,), attributes=KERNEL_GRADIENT | {"window_strides": (1, gap)}
        ),
    )
    kernel = Value((3, 3, 64, 64), "bf16")
    graph = Graph(values=(line, kernel, line, kernel), ops=ops, arguments=(0, 1), results=(3,))
    assert is_gradient_cut(graph, ops[1], parts_of(graph, cut_convolutions(graph, FEW))) == cut


@pytest.mark.parametrize(("is_cut", "step", "whole"), [(True, 1, False), (False, 1, True), (False, 2, False)])
def test_what_a_whole_convolution_makes_comes_back_whole(*, is_cut: bool, step: int, whole: bool) -> None:
    """As compiled for v6e and v4: of 5x5 windows that move on by two the gradient has gaps, and is not cut; that of the
    kernel before it, whose windows move on by one, is neither.
    """
    image, kernel = Value((1, 128, 128, 64), "bf16"), Value((5, 5, 64, 64), "bf16")
    masked = Op(kind="select", operands=(3, 2, 4), results=(5,))
    said = KERNEL_GRADIENT | {"rhs_dilation": (step, step)}
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=CONVOLVED),
        masked,
        Op(kind="convolution", operands=(0, 5), results=(6,), attributes=said),
    )
    mask, zeros = Value(image.shape, "pred"), image
    graph = Graph(values=(image, kernel, image, mask, zeros, image, kernel), ops=ops, arguments=(0, 1), results=(6,))
    assert comes_back_whole(graph, ops[2], {2: ops[0]} if is_cut else {}) == whole


@pytest.mark.parametrize(("size", "step", "whole"), [(256, 2, True), (56, 2, False), (56, 1, True)])
def test_parts_of_whole_steps_are_not_widened(size: int, step: int, *, whole: bool) -> None:
    """As compiled for v6e: windows that move on by two read parts of 32 places as they are."""
    image, kernel = Value((1, size, size, 64), "bf16"), Value((1, 1, 64, 64), "bf16")
    made = Value((1, size // step, size // step, 64), "bf16")
    said = CONVOLVED | {"padding": ((0, 0), (0, 0)), "window_strides": (step, step)}
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=said)
    assert has_whole_steps(Graph(values=(image, kernel, made), ops=(op,), arguments=(0, 1), results=(2,)), op) == whole
