"""Convolutions of so many images that they fill registers, beside the TPU compiler's cycles of them in real nets."""

from __future__ import annotations

from dataclasses import replace

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import speed_of
from meshwright.planner.compute.cycles import cycles_of
from meshwright.planner.compute.images.convolved import Convolved
from meshwright.planner.compute.manner import LATER, manner_of
from meshwright.planner.compute.products import product_of
from meshwright.planner.compute.sides import LEFT, RIGHT
from meshwright.planner.compute.windows import windows_of
from meshwright.planner.compute.work import Work, padded_bytes, work_of
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel
from programs import CONVOLVED
from test_compute import convolved

PICTURES, STEM = (224, 224, 3), (7, 7, 3, 64)


def took(graph: Graph, name: str, work: Work, *, near: bool = True, near_result: bool = True) -> float:
    """Cycles of a kernel whose only product is this convolution, which reads near or not."""
    speed = speed_of(catalogue()[name])
    product = product_of(graph, graph.ops[0])
    product = replace(product, windows=windows_of(graph, graph.ops[0], manner_of(speed.coefficients)))
    found = replace(work, products=(product,), sides=(LEFT, RIGHT))
    reads, writes = [near] * len(work.reads), [near_result] * len(work.writes)
    return cycles_of(found, reads, writes, speed.edge, speed.coefficients).total


def normed(size: int, enters: int, leaves: int, window: int = 1, batch: int = 8, step: int = 1) -> tuple[Graph, Work]:
    """A convolution in bfloat16 and the sums of batch norm over what it makes, three operations for each number."""
    made = (batch, size, size, leaves)
    graph = convolved((batch, step * size, step * size, enters), (window, window, enters, leaves), made, gradient=False)
    full = batch * size * size * -(-leaves // 128) * 128
    around = (padded_bytes(Value(graph.values[0].shape, "bf16")), 4 * window * window * enters * leaves)
    writes = (2 * full, 4 * leaves, 4 * leaves)
    return graph, Work(kind="product", reads=around, writes=writes, spill_bytes=4 * full, registers=3 * full / 1024)


@pytest.mark.parametrize(
    ("size", "enters", "leaves", "window", "cycles"),
    [
        (56, 64, 256, 1, 62_828),
        (56, 256, 128, 1, 36_708),
        (56, 64, 64, 1, 34_370),
        (28, 128, 512, 1, 33_603),
        (14, 256, 1024, 1, 20_050),
        (7, 512, 2048, 1, 13_520),
        (56, 64, 64, 3, 44_955),
        (28, 128, 128, 3, 18_568),
        (14, 256, 256, 3, 17_752),
    ],
)
def test_sums_beside_a_convolution_and_what_it_multiplies_come_on_top_of_each_other(
    size: int, enters: int, leaves: int, window: int, cycles: int
) -> None:
    """As compiled for v5e, of eight images all of which is near."""
    graph, work = normed(size, enters, leaves, window)
    assert took(graph, "v5e", work) == pytest.approx(cycles, rel=0.08)


@pytest.mark.parametrize(("size", "enters", "leaves", "cycles"), [(56, 256, 128, 21_936), (14, 256, 1024, 15_361)])
def test_a_convolution_that_leaves_its_image_in_the_large_memory_waits_for_it(
    size: int, enters: int, leaves: int, cycles: int
) -> None:
    """As compiled for v5p."""
    graph, work = normed(size, enters, leaves)
    assert took(graph, "v5p", work, near_result=False) == pytest.approx(cycles, rel=0.15)


@pytest.mark.parametrize(
    ("size", "enters", "leaves", "cycles"), [(56, 64, 256, 92_272), (56, 256, 64, 51_088), (56, 64, 64, 48_762)]
)
def test_what_a_convolution_reads_from_a_common_memory_is_at_hand(
    size: int, enters: int, leaves: int, cycles: int
) -> None:
    """As compiled for v4, whose cores have one."""
    graph, work = normed(size, enters, leaves)
    assert took(graph, "v4", work) == pytest.approx(cycles, rel=0.12)


@pytest.mark.parametrize(("name", "batch", "cycles"), [("v5e", 8, 414_107), ("v6e", 16, 215_040)])
def test_what_pictures_make_is_added_up_position_by_position(name: str, batch: int, cycles: int) -> None:
    graph, work = normed(112, 3, 64, 7, batch, step=2)
    op = replace(graph.ops[0], attributes={**graph.ops[0].attributes, "window_strides": (2, 2)})
    strided = replace(graph, ops=(op,))
    assert took(strided, name, work, near_result=name == "v5e") == pytest.approx(cycles, rel=0.1)


@pytest.mark.parametrize(
    ("name", "batch", "cycles"), [("v5e", 8, 123_295), ("v6e", 16, 133_460), ("v3", 8, 333_334), ("v4", 8, 226_538)]
)
def test_the_gradient_of_a_kernel_over_pictures_takes_a_row_for_many(name: str, batch: int, cycles: int) -> None:
    graph = convolved((batch, *PICTURES), (batch, 112, 112, 64), STEM, gradient=True)
    op = replace(graph.ops[0], attributes={**graph.ops[0].attributes, "rhs_dilation": (2, 2)})
    work = Work(kind="product", reads=(0, 0), writes=(4 * 7 * 7 * 3 * 64,))
    assert took(replace(graph, ops=(op,)), name, work) == pytest.approx(cycles, rel=0.1)


def test_the_gradient_of_a_kernel_has_for_depth_which_side_leaves_room() -> None:
    """As compiled for v5e: 128 features to 64 take 473549 cycles, half of 128 to 128."""
    rows = [
        windows_of(graph, graph.ops[0], LATER).rows(128)
        for graph in (
            convolved((8, 224, 224, 128), (8, 224, 224, leaves), (3, 3, 128, leaves), gradient=True)
            for leaves in (64, 128)
        )
    ]
    assert rows[0] == rows[1] / 2


@pytest.mark.parametrize(("gradient", "cycles"), [(False, 375_328), (True, 193_618)])
def test_features_apart_fill_lanes_and_take_less_for_a_kernels_gradient(gradient: bool, cycles: int) -> None:
    """49 positions of 96 features of eight images, as compiled for v5e."""
    images, kernel = (8, 56, 56, 96), (7, 7, 1, 96)
    graph = convolved(images, images if gradient else kernel, kernel if gradient else images, gradient=gradient)
    said = {**graph.ops[0].attributes, "batch_group_count" if gradient else "feature_group_count": 96}
    if gradient:
        said |= {"input_batch_dimension": 3, "input_feature_dimension": 0}
    apart = replace(graph, ops=(replace(graph.ops[0], attributes=said),))
    full = 8 * 56 * 56 * 128
    writes, spilled = ((4 * 49 * 96,), 0) if gradient else ((2 * full,), 4 * full)
    work = Work(kind="product", reads=(2 * full, 2 * full), writes=writes, spill_bytes=spilled)
    assert took(apart, "v5e", work) == pytest.approx(cycles, rel=0.15)


def rounded_pictures() -> tuple[Graph, Kernel, Kernel]:
    """Pictures that are only rounded, as a step is given them, and convolved."""
    values = (Value((8, *PICTURES), "f32"), Value(STEM, "bf16"), Value((8, *PICTURES), "bf16"))
    made = Value((8, 112, 112, 64), "bf16")
    ops = (
        Op(kind="convert", operands=(0,), results=(2,)),
        Op(kind="convolution", operands=(2, 1), results=(3,), attributes={**CONVOLVED, "window_strides": (2, 2)}),
    )
    graph = Graph(values=(*values, made), ops=ops, arguments=(0, 1), results=(3,))
    return graph, Kernel(ops=(0,), reads=(0,), writes=(2,)), Kernel(ops=(1,), reads=(2, 1), writes=(3,))


@pytest.mark.parametrize(
    ("name", "near", "cycles"),
    [("v5e", True, 5600), ("v5e", False, 583_968), ("v5p", False, 299_348), ("v4", True, 305_536)],
)
def test_pictures_are_rounded_as_they_lie_and_copied_to_be_convolved(name: str, near: bool, cycles: int) -> None:
    """The copies as compiled, into the fast memory or the large one."""
    graph, rounding, convolving = rounded_pictures()
    speed = speed_of(catalogue()[name])
    images = Convolved(graph, speed.coefficients, speed.edge, given=graph.arguments)
    assert images.copies_cycles(rounding, lambda _: near) == 0
    work = work_of(graph, rounding)
    assert images.counted(rounding, work) == work
    assert images.copies_cycles(convolving, lambda _: near) == pytest.approx(
        cycles, rel=0.4 if cycles < 10_000 else 0.1
    )


@pytest.mark.parametrize(("means", "cycles"), [(1, 53_692), (2, 61_705)])
def test_what_is_known_of_places_is_moved_between_lanes_and_rows(means: int, cycles: int) -> None:
    """Sums over features in layer norm, as compiled for v5e: one or two values of each place are read for them."""
    image, place = Value((8, 56, 56, 96), "bf16"), Value((8, 56, 56), "f32")
    values = (image, Value((1, 1, 96, 96), "bf16"), image, *[place] * means, Value(image.shape, "f32"), place)
    last = len(values) - 1
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=CONVOLVED),
        *(Op(kind="sort", results=(3 + number,)) for number in range(means)),
        Op(kind="subtract", operands=(2, *range(3, last - 1)), results=(last - 1,)),
        Op(kind="reduce", operands=(last - 1,), results=(last,), attributes={"dimensions": (3,), "reducer": "add"}),
    )
    graph = Graph(values=values, ops=ops, arguments=(0, 1), results=(last,))
    kernel = Kernel(ops=(means + 1, means + 2), reads=(2, *range(3, last - 1)), writes=(last,))
    speed = speed_of(catalogue()["v5e"])
    images = Convolved(graph, speed.coefficients, speed.edge, given=graph.arguments)
    work = images.counted(kernel, work_of(graph, kernel))
    near = [True] * len(kernel.reads)
    assert cycles_of(work, near, (True,), speed.edge, speed.coefficients).total == pytest.approx(cycles, rel=0.15)


@pytest.mark.parametrize(
    ("name", "image", "window", "compiled"),
    [
        ("v5e", (16, 16, 16, 128), (4, 4, 128, 3), 16_485), ("v4", (16, 16, 16, 128), (4, 4, 128, 3), 22_239),
        ("v3", (16, 16, 16, 128), (4, 4, 128, 3), 37_882), ("v3", (16, 16, 16, 128), (4, 4, 128, 8), 38_286),
        ("v4", (32, 16, 16, 64), (4, 4, 64, 3), 36_800), ("v3", (32, 16, 16, 64), (4, 4, 64, 3), 71_500),
        ("v3", (64, 8, 8, 256), (3, 3, 256, 1), 41_078),
    ],
)  # fmt: skip
def test_pictures_made_of_images_with_gaps_take_no_kernel_brought_to_squares(
    name: str, image: tuple[int, ...], window: tuple[int, ...], compiled: int
) -> None:
    """What leaves has the batch on the lanes: transposed convolutions as decoders end with, twice the size."""
    made = (image[0], 2 * image[1], 2 * image[2], window[-1])
    values = tuple(Value(shape, "bf16") for shape in (image, window, made))
    said = CONVOLVED | {"lhs_dilation": (2, 2)}
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=said)
    graph = Graph(values=values, ops=(op,), arguments=(0, 1), results=(2,))
    work = work_of(graph, Kernel(ops=(0,), reads=(0, 1), writes=(2,)))
    assert took(graph, name, work) == pytest.approx(compiled, rel=0.3)
