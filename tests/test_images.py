"""How images lie around convolutions, and what that costs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.planner.catalogue import catalogue
from meshwright.planner.chip import Chip
from meshwright.planner.compute import price
from meshwright.planner.compute.images.convolved import Convolved
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.compute.work import Work, work_of
from meshwright.planner.fusion import fuse
from meshwright.planner.fusion.masks import image_dims, is_packed
from meshwright.planner.fusion.uses import read_uses
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.images import Image, batch_on_lanes, images, is_gradient_of_kernel, laid_elements
from meshwright.planner.kernels import Kernel
from programs import CONVOLVED, KERNEL_GRADIENT


def chip(kind: str) -> Chip:
    return catalogue()[kind]


def net(batch: int, size: int, features: int) -> Graph:
    """An image convolved, and what comes out rectified."""
    image = Value((batch, size, size, features), "f32")
    kernel = Value((3, 3, features, features), "f32")
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=CONVOLVED),
        Op(kind="tanh", operands=(2,), results=(3,)),
    )
    return Graph(values=(image, kernel, image, image), ops=ops, arguments=(0, 1), results=(3,))


def convolved(graph: Graph, kind: str) -> Convolved:
    speed = speed_of(chip(kind))
    return Convolved(graph, speed.coefficients, speed.edge, given=graph.arguments)


def cutting(graph: Graph, kind: str) -> float:
    """The cycles of kernels besides, that cut images and shift what is cut."""
    found = convolved(graph, kind)
    return sum(map(found.parts_cycles, fuse(graph).kernels))


def counted(graph: Graph, kind: str) -> Work:
    (kernel,) = fuse(graph).kernels
    return convolved(graph, kind).counted(kernel, work_of(graph, kernel))


def tiles(features: int, batch: int, *, turned: bool) -> int:
    """Elements of f32 with lanes and rows filled up, counted tile by tile."""
    lanes, rows = (batch, features) if turned else (features, batch)
    high = next(n for n in (1, 2, 4, 8) if n >= min(rows, 8))
    return len(range(0, lanes, 128)) * 128 * len(range(0, rows, high)) * high


@given(features=st.integers(1, 300), batch=st.integers(1, 300))
def test_an_image_lies_as_it_is_padded_less(features: int, batch: int) -> None:
    both = [tiles(features, batch, turned=turned) for turned in (False, True)]
    assert batch_on_lanes(features, batch) == (both[1] < both[0])
    image = Value((batch, 5, features), "f32")
    assert laid_elements(image, Image(features=2, batch=0)) == 5 * min(both)
    assert laid_elements(image, Image(features=2, batch=0), turned=True) == 5 * both[1]


def test_a_batch_of_eight_with_64_features_fills_half_of_the_lanes() -> None:
    graph = net(8, 128, 64)
    assert images(graph) == {(8, 128, 128, 64): Image(features=3, batch=0)}
    assert counted(graph, "v3").writes == (2 * graph.values[0].num_bytes,)


@pytest.mark.parametrize(
    ("kind", "batch", "is_cut"), [("v3", 1, True), ("v3", 2, False), ("v4", 4, True), ("v5e", 4, True)]
)
def test_few_images_are_cut_into_parts(kind: str, batch: int, is_cut: bool) -> None:
    """v3 cuts one image alone, chips with more vector memory any batch below eight."""
    assert (cutting(net(batch, 256, 64), kind) > 0) == is_cut


@pytest.mark.parametrize(("batch", "registers"), [(2, 4), (4, 2), (8, 1)])
def test_few_images_leave_rows_of_registers_empty(batch: int, registers: int) -> None:
    graph = net(batch, 32, 128)
    (kernel,) = fuse(graph).kernels
    plain = work_of(graph, kernel)
    assert counted(graph, "v3").registers == registers * plain.registers > 0


def test_an_argument_is_copied_before_it_is_convolved() -> None:
    """0.24 million cycles on v3, as the compiler counts."""
    graph = net(8, 128, 64)
    (kernel,) = fuse(graph).kernels
    found = convolved(graph, "v3")
    assert found.copies_cycles(kernel) == pytest.approx(240e3, rel=0.35)
    assert found.copies_cycles(kernel) == 0  # it lies there now
    speed = speed_of(chip("v3"))
    assert Convolved(graph, speed.coefficients, speed.edge).copies_cycles(kernel) == 0


def test_a_chip_without_matrix_units_takes_images_as_they_are() -> None:
    graph = net(1, 256, 64)
    (kernel,) = fuse(graph).kernels
    assert counted(graph, "h100") == work_of(graph, kernel)
    assert convolved(graph, "h100").copies_cycles(kernel) == 0


def put_beside(dim: int, size: int, features: int) -> int:
    """The kernels in which an image with something put beside it along a dim is convolved."""
    graph = net(8, size, features)
    strip = tuple(1 if d == dim else size for d, size in enumerate(graph.shape(0)))
    whole = tuple(size + (d == dim) for d, size in enumerate(graph.shape(0)))
    ops = (
        Op(kind="concatenate", operands=(0, 4), results=(5,), attributes={"dimension": dim}),
        replace(graph.ops[0], operands=(5, 1), attributes=CONVOLVED),
        graph.ops[1],
    )
    values = (*graph.values, Value(strip, "f32"), Value(whole, "f32"))
    return len(fuse(replace(graph, values=values, ops=ops, arguments=(0, 1, 4))).kernels)


@pytest.mark.parametrize("dim", [1, 3])
def test_neighbours_rows_and_other_features_are_put_beside_an_image_where_it_is_convolved(dim: int) -> None:
    assert put_beside(dim, 128, 64) == 1


def test_neighbours_columns_are_put_beside_an_image_before_where_features_pad_it_more() -> None:
    """As v3 does with eight images of 64 columns and 32 features, and of 32 columns or 64 features not."""
    assert put_beside(2, 64, 32) == 2
    assert put_beside(2, 32, 32) == put_beside(2, 64, 64) == 1


@pytest.mark.parametrize(("sides", "packed"), [((32, 32), True), ((64, 32), True), ((32, 64), True), ((64, 64), False)])
def test_masks_of_images_with_32_rows_or_columns_are_bits(sides: tuple[int, int], packed: bool) -> None:
    image = Value((16, *sides, 64), "f32")
    graph = net(16, 32, 64)
    graph = replace(graph, values=(image, graph.values[1], image, image))
    mask = Value(image.shape, "pred")
    ops = (graph.ops[0], Op(kind="compare", operands=(2, 0), results=(4,)), graph.ops[1])
    compared = replace(graph, values=(*graph.values, mask), ops=ops, results=(3, 4))
    shape, along = compared.shape(ops[1].results[0]), image_dims(compared, read_uses(compared), ops[1])
    assert is_packed(shape, along) == packed


def test_a_product_is_no_convolution() -> None:
    plain, said = Value((64, 64), "f32"), {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    op = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    graph = Graph(values=(plain, plain, plain), ops=(op,), arguments=(0, 1), results=(2,))
    (kernel,) = fuse(graph).kernels
    work = work_of(graph, kernel)
    assert counted(graph, "v3") == work


def test_the_gradient_of_a_kernel_is_told_by_its_window() -> None:
    graph = net(8, 128, 64)
    assert not is_gradient_of_kernel(graph, graph.ops[0])
    turned = replace(graph, values=(graph.values[0], graph.values[0], graph.values[1], graph.values[1]))
    said = CONVOLVED | {"kernel_spatial_dimensions": (1, 2), "output_spatial_dimensions": (0, 1)}
    assert is_gradient_of_kernel(turned, replace(graph.ops[0], attributes=said))


def gradient(places: int) -> Graph:
    """Two computed images of 128x128, convolved with a kernel of so many places a side, and that kernel's gradient."""
    image, kernel = Value((2, 128, 128, 64), "bf16"), Value((places, places, 64, 64), "f32")
    margins = {"padding": ((places // 2, places // 2),) * 2}
    ops = (
        Op(kind="sort", operands=(0,), results=(2,)),
        Op(kind="convolution", operands=(2, 1), results=(3,), attributes=CONVOLVED | margins),
        Op(kind="convolution", operands=(2, 3), results=(4,), attributes=KERNEL_GRADIENT | margins),
    )
    return Graph(values=(image, kernel, image, image, kernel), ops=ops, arguments=(0, 1), results=(3, 4))


def test_each_further_place_of_a_row_shifts_a_cut_image_once_more() -> None:
    """As compiled for v5p, all kernels but convolutions of two such images: 0.48 million cycles for 3x3, 1.01 million
    for 5x5.
    """
    further = (cutting(gradient(5), "v5p") - cutting(gradient(3), "v5p")) / 2
    assert further == pytest.approx((1.01e6 - 0.48e6) / 4, rel=0.25)


def test_an_image_has_its_parts_put_beside_each_other_once_for_all_alike() -> None:
    """Two convolutions of an image over the same places, as compiled for v4."""
    one = net(4, 64, 64)
    second = replace(one.ops[0], results=(3,))
    two = replace(one, ops=(one.ops[0], second), results=(2, 3))
    found = convolved(two, "v4")
    kernels = [Kernel(ops=(n,), reads=(0, 1), writes=(2 + n,)) for n in range(2)]
    first, again = (found.parts_cycles(kernel) for kernel in kernels)
    assert first > 0
    assert again == 0


@pytest.mark.parametrize(
    ("kind", "batch", "rows", "mega_cycles"),
    [("v5e", 2, 32, 0.45), ("v5e", 4, 32, 0.70), ("v5e", 4, 96, 2.84), ("v6e", 4, 96, 1.75)],
)
def test_neighbours_rows_are_put_beside_images_that_are_put_together_for_it(
    kind: str, batch: int, rows: int, mega_cycles: float
) -> None:
    """All that kernels besides took of one more convolution and its kernel's gradient, as compiled."""
    own, strip = Value((batch, rows, 4 * rows, 64), "bf16"), Value((batch, 2, 4 * rows, 64), "bf16")
    kernel, joined = Value((3, 3, 64, 64), "f32"), Value((batch, rows + 2, 4 * rows, 64), "bf16")
    ops = (
        Op(kind="sort", operands=(0,), results=(3,)),
        Op(kind="concatenate", operands=(3, 2), results=(4,), attributes={"dimension": 1}),
        Op(kind="convolution", operands=(4, 1), results=(5,), attributes=CONVOLVED | {"padding": ((0, 0), (1, 1))}),
        Op(kind="convolution", operands=(4, 5), results=(6,), attributes=KERNEL_GRADIENT),
    )
    values = (own, kernel, strip, own, joined, own, kernel)
    graph = Graph(values=values, ops=ops, arguments=(0, 1, 2), results=(5, 6))
    assert cutting(graph, kind) == pytest.approx(mega_cycles * 1e6, rel=0.3)


@pytest.mark.parametrize("kind", ["v3", "v5e", "v6e"])
def test_twice_the_images_take_at_most_twice_the_time(kind: str) -> None:
    took = [sum(p.seconds for p in price(fuse(net(batch, 64, 64)), chip(kind))) for batch in (8, 16)]
    assert took[0] < took[1] < 2.1 * took[0]


@pytest.mark.parametrize(
    ("batch", "features", "cycles"), [(8, 64, 68_768), (16, 32, 34_560), (32, 32, 69_120), (64, 32, 102_400)]
)
def test_positions_of_a_window_share_a_depth_where_registers_are_full_of_images(
    batch: int, features: int, cycles: int
) -> None:
    """The squares of images of 64x64 convolved by 3x3, as compiled for v5e: two or four positions share each."""
    speed = speed_of(chip("v5e"))
    (product,) = counted(net(batch, 64, features), "v5e").products
    squares = product.padded(speed.edge) * speed.coefficients.multiply_add_cycles
    assert squares == pytest.approx(cycles, rel=0.3)


@pytest.mark.parametrize(("window", "passes"), [(1, False), (3, True)])
def test_what_is_cut_is_not_put_together_again_for_windows_of_one_place(window: int, passes: bool) -> None:
    """As compiled for v6e: of one image of 128x128x64 that is computed a 1x1 kernel takes rows of a matrix."""
    graph = net(1, 128, 64)
    image, kernel, *others = graph.values
    placed = replace(kernel, shape=(window, window, *kernel.shape[2:]))
    convolution, *after = graph.ops
    ops = (Op(kind="sort", operands=(0,), results=(4,)), replace(convolution, operands=(4, 1)), *after)
    computed = replace(graph, values=(image, placed, *others, image), ops=ops)
    assert (cutting(computed, "v6e") > 0) == passes


def grouped(features: int, groups: int, dilation: int = 1) -> Graph:
    """A convolution of so many groups of features, its image perhaps with gaps."""
    image = Value((32, 56, 56, features), "f32")
    kernel = Value((3, 3, features // groups, features), "f32")
    made = Value((32, 56 * dilation, 56 * dilation, features), "f32")
    said = {**CONVOLVED, "feature_group_count": groups, "lhs_dilation": (dilation, dilation)}
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=said)
    return Graph(values=(image, kernel, made), ops=(op,), arguments=(0, 1), results=(2,))


def seconds(graph: Graph, kind: str) -> float:
    return sum(each.seconds for each in price(fuse(graph), chip(kind)))


@pytest.mark.parametrize(("kind", "cycles"), [("v3", 297808), ("v5e", 328695)])
def test_features_that_stay_apart_are_no_products(kind: str, cycles: int) -> None:
    """As compiled: on v3, and with the same number of elements on v5e."""
    found = seconds(grouped(128, 128), kind) * (chip(kind).clock_hz or 0)
    assert found == pytest.approx(cycles, rel=0.25)
    assert found < 0.1 * 128 * seconds(grouped(128, 1), kind) * (chip(kind).clock_hz or 0)


def test_groups_that_make_one_feature_of_several_are_products() -> None:
    """Only where a feature is made of one alone nothing is multiplied by matrix units."""
    values = (Value((32, 32, 32, 512), "bf16"), Value((3, 3, 128, 4), "bf16"), Value((32, 32, 32, 4), "bf16"))
    said = grouped(512, 4).ops[0].attributes
    graph = Graph(
        values=values,
        ops=(Op(kind="convolution", operands=(0, 1), results=(2,), attributes=said),),
        arguments=(0, 1),
        results=(2,),
    )
    wider = replace(graph, values=(values[0], Value((3, 3, 128, 8), "bf16"), Value((32, 32, 32, 8), "bf16")))
    assert seconds(graph, "v5e") > 0.9 * seconds(wider, "v5e")


def test_small_groups_of_features_are_convolved_together() -> None:
    assert seconds(grouped(128, 32), "v3") == pytest.approx(seconds(grouped(128, 1), "v3"), rel=0.1)


@pytest.mark.parametrize(
    ("batch", "size", "enters", "leaves", "cycles"), [(8, 16, 256, 128, 302603), (8, 32, 128, 64, 603713)]
)
def test_an_image_with_gaps_waits_for_its_kernel_at_each_place(
    batch: int, size: int, enters: int, leaves: int, cycles: int
) -> None:
    """Gradients of convolutions with strides, as compiled for v3."""
    image, made = Value((batch, size, size, enters), "bf16"), Value((batch, 2 * size, 2 * size, leaves), "bf16")
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes={**CONVOLVED, "lhs_dilation": (2, 2)})
    values = (image, Value((3, 3, enters, leaves), "bf16"), made)
    found = seconds(Graph(values=values, ops=(op,), arguments=(0, 1), results=(2,)), "v3") * (chip("v3").clock_hz or 0)
    assert found == pytest.approx(cycles, rel=0.25)


@pytest.mark.parametrize(
    ("kind", "batch", "size", "enters", "leaves", "cycles"),
    [
        ("v5e", 16, 16, 256, 256, 84_877),
        ("v5e", 64, 16, 128, 128, 117_873),
        ("v5p", 8, 16, 512, 512, 156_672),
        ("v6e", 16, 32, 256, 64, 155_933),
        ("v4", 64, 16, 128, 128, 147_548),
        ("v3", 64, 16, 64, 64, 144_968),
    ],
)
def test_an_image_with_gaps_takes_vectors_for_what_it_makes_or_waits_for_its_kernel(
    kind: str, batch: int, size: int, enters: int, leaves: int, cycles: int
) -> None:
    """The convolution alone, as compiled: at each position of its window."""
    image, made = Value((batch, size, size, enters), "bf16"), Value((batch, 2 * size, 2 * size, leaves), "bf16")
    kernel = Value((3, 3, leaves, enters), "bf16")
    said = {
        **CONVOLVED,
        "lhs_dilation": (2, 2),
        "kernel_input_feature_dimension": 3,
        "kernel_output_feature_dimension": 2,
    }
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=said)
    speed = speed_of(chip(kind))
    graph = Graph(values=(image, kernel, made), ops=(op,), arguments=(0, 1), results=(2,))
    found = Convolved(graph, speed.coefficients, speed.edge).units_cycles(op)
    assert found == pytest.approx(cycles, rel=0.15)


@pytest.mark.parametrize(
    ("size", "kernel", "columns", "cycles"),
    [
        (64, (3, 3, 64, 128), 128, 1_194_740),
        (64, (3, 3, 64, 128), 4, 2_384_686),  # rows come to lie on the lanes, and are what leaves
        (32, (3, 3, 128, 64), 8, 305_500),
    ],
)
def test_a_kernel_lies_as_the_pieces_that_it_is_gathered_of(
    size: int, kernel: tuple[int, ...], columns: int, cycles: int
) -> None:
    """Of images with gaps, whose kernel is brought to them as it lies: as compiled for v3 in a net."""
    leaves, enters = kernel[2:]
    image, made = Value((16, size, size, enters), "bf16"), Value((16, 2 * size, 2 * size, leaves), "bf16")
    said = {
        **CONVOLVED,
        "lhs_dilation": (2, 2),
        "kernel_input_feature_dimension": 3,
        "kernel_output_feature_dimension": 2,
    }
    ops = (
        Op(kind="all-gather", operands=(1,), results=(2,)),
        Op(kind="reverse", operands=(2,), results=(3,)),
        Op(kind="convolution", operands=(0, 3), results=(4,), attributes=said),
    )
    values = (image, Value((*kernel[:3], columns), "bf16"), *[Value(kernel, "bf16")] * 2, made)
    graph = Graph(values=values, ops=ops, arguments=(0, 1), results=(4,))
    found = convolved(graph, "v3")
    found.gathered(ops[0])
    inside = Kernel(ops=(1, 2), reads=(0, 2), writes=(4,))
    found.counted(inside, work_of(graph, inside))
    assert found.units_cycles(ops[2]) == pytest.approx(cycles, rel=0.1)


def test_the_kernels_of_patches_are_told_from_images_by_their_stride() -> None:
    """A patch has more numbers than there are patches along an image; its kernel's gradient has gaps instead."""
    values = (Value((16, 224, 224, 3), "f32"), Value((16, 16, 3, 768), "f32"), Value((16, 14, 14, 768), "f32"))
    forward = Op(
        kind="convolution", operands=(0, 1), results=(2,), attributes={**CONVOLVED, "window_strides": (16, 16)}
    )
    swapped = {
        **CONVOLVED,
        "kernel_spatial_dimensions": (1, 2),
        "output_spatial_dimensions": (0, 1),
        "rhs_dilation": (16, 16),
        "window_strides": (1, 1),
    }
    backward = Op(kind="convolution", operands=(0, 2), results=(1,), attributes=swapped)
    graph = Graph(values=values, ops=(forward, backward), arguments=(0, 1, 2), results=(1, 2))
    assert not is_gradient_of_kernel(graph, forward)
    assert is_gradient_of_kernel(graph, backward)


def test_windows_of_one_place_over_few_images_take_vectors_at_each_place() -> None:
    """As compiled for v3: bf16[4,56,56,64] to 256 features takes 84 thousand cycles, with a bias that is added."""
    image, made = Value((4, 56, 56, 64), "bf16"), Value((4, 56, 56, 256), "bf16")
    op = Op(kind="convolution", operands=(0, 1), results=(2,), attributes=CONVOLVED | {"padding": ((0, 0), (0, 0))})
    values = (image, Value((1, 1, 64, 256), "bf16"), made)
    found = seconds(Graph(values=values, ops=(op,), arguments=(0, 1), results=(2,)), "v3") * (chip("v3").clock_hz or 0)
    assert found == pytest.approx(84_000, rel=0.25)


@pytest.mark.parametrize(
    ("kind", "size", "enters", "leaves", "cycles"),
    [
        ("v3", 8, 512, 256, 309_487),  # waits for its kernel, as where its features lie on the lanes
        ("v3", 8, 512, 128, 158_161),
        ("v3", 8, 256, 256, 156_841),
        ("v3", 4, 512, 256, 81_327),
        ("v5e", 8, 512, 256, 78_642),  # takes the rows of its features, of a quarter of the places
    ],
)
def test_an_image_with_gaps_whose_features_were_gathered(
    kind: str, size: int, enters: int, leaves: int, cycles: int
) -> None:
    """Sixteen images, more than they have places, lie with the batch on the lanes then: as compiled."""
    piece = Value((16, size, size, enters // 8), "bf16")
    image, made = replace(piece, shape=(16, size, size, enters)), Value((16, 2 * size, 2 * size, leaves), "bf16")
    ops = (
        Op(kind="all-gather", operands=(0,), results=(2,)),
        Op(kind="convolution", operands=(2, 1), results=(3,), attributes={**CONVOLVED, "lhs_dilation": (2, 2)}),
    )
    values = (piece, Value((3, 3, enters, leaves), "bf16"), image, made)
    found = convolved(Graph(values=values, ops=ops, arguments=(0, 1), results=(3,)), kind)
    found.gathered(ops[0])
    assert found.units_cycles(ops[1]) == pytest.approx(cycles, rel=0.15)
