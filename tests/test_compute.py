"""What kernels take: work counted by hand, laws that prices obey, tables, fits."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.planner.catalogue import catalogue
from meshwright.planner.chip import Chip
from meshwright.planner.compute import KernelPrice, dump, load, price, shipped, speed_of
from meshwright.planner.compute.calibration import Calibration, FitError
from meshwright.planner.compute.coefficients import Coefficients
from meshwright.planner.compute.cycles import cycles_of
from meshwright.planner.compute.demand import demanded
from meshwright.planner.compute.fit import Measured, errors, fit
from meshwright.planner.compute.manner import LATER
from meshwright.planner.compute.products import product_of
from meshwright.planner.compute.sides import ONCE
from meshwright.planner.compute.start import first_guess
from meshwright.planner.compute.windows import Windows, windows_of
from meshwright.planner.compute.work import padded_bytes, work_of
from meshwright.planner.estimate.roofline import bound
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.search.floor import Products

MIB = 2**20
GPU_DTYPES = {("bf16",): "bfloat16", ("f32",): "tfloat32", ("f32", "HIGHEST"): "float32"}


def graph(*ops: tuple[str, tuple[int, ...], Value, dict[str, object]], arguments: tuple[Value, ...]) -> Graph:
    """Operations that each make one value; values are numbered arguments first."""
    values = [*arguments, *(value for _, _, value, _ in ops)]
    made = tuple(
        Op(kind=kind, operands=operands, results=(len(arguments) + i,), attributes=said)
        for i, (kind, operands, _, said) in enumerate(ops)
    )
    return Graph(values=tuple(values), ops=made, arguments=tuple(range(len(arguments))), results=(len(values) - 1,))


def product(rows: int, depth: int, columns: int, dtype: str = "bf16", precision: str = "DEFAULT") -> Graph:
    left, right = Value((rows, depth), dtype), Value((depth, columns), dtype)
    said: dict[str, object] = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    said["precision_config"] = (precision, precision)
    return graph(("dot_general", (0, 1), Value((rows, columns), dtype), said), arguments=(left, right))


def chain(rows: int, arrays: int, steps: int = 2) -> Graph:
    """``steps`` additions over ``arrays`` arrays of [rows, 1024]."""
    one = Value((rows, 1024), "f32")
    ops: list[tuple[str, tuple[int, ...], Value, dict[str, object]]] = [("add", (0, arrays - 1), one, {})]
    ops += [("add", (arrays + i, (i + 1) % arrays), one, {}) for i in range(steps - 1)]
    return graph(*ops, arguments=(one,) * arrays)


def seconds(prices: tuple[KernelPrice, ...]) -> float:
    return sum(each.seconds * each.times for each in prices)


def chip(name: str) -> Chip:
    return catalogue()[name]


def test_bytes_are_padded_to_tiles_in_the_layout_that_wastes_least() -> None:
    assert padded_bytes(Value((1024, 1024), "f32")) == 4 * MIB
    assert padded_bytes(Value((1024, 1024), "bf16")) == 2 * MIB
    assert padded_bytes(Value((1024, 3), "f32")) == 1024 * 8 * 4
    assert padded_bytes(Value((), "f32")) == 128 * 4
    assert padded_bytes(Value((16, 512, 2, 64), "f32")) == 16 * 512 * 2 * 64 * 4


@given(st.lists(st.integers(1, 300), min_size=2, max_size=4))
def test_padding_never_takes_away_and_whole_tiles_need_none(shape: list[int]) -> None:
    value = Value(tuple(shape), "f32")
    assert padded_bytes(value) >= value.num_bytes
    whole = Value((shape[0] * 8, shape[1] * 128), "f32")
    assert padded_bytes(whole) == whole.num_bytes


def test_a_product_is_counted_in_whole_squares() -> None:
    g = product(4096, 64, 200)
    found = product_of(g, g.ops[0])
    assert (found.rows, found.depth, found.columns) == (4096, 64, 200)
    assert found.multiply_adds == 4096 * 64 * 200
    assert found.padded(128) == 4096 * 128 * 200  # rows held, columns streamed: 200 need no whole square
    assert found.padded(1) == found.multiply_adds


def convolved(left: tuple[int, ...], right: tuple[int, ...], made: tuple[int, ...], *, gradient: bool) -> Graph:
    """A convolution of images (batch, height, width, features), or the gradient of its kernel."""
    said: dict[str, object] = {
        "input_batch_dimension": 3 if gradient else 0,
        "input_feature_dimension": 0 if gradient else 3,
        "input_spatial_dimensions": (1, 2),
        "kernel_input_feature_dimension": 0 if gradient else 2,
        "kernel_output_feature_dimension": 3,
        "kernel_spatial_dimensions": (1, 2) if gradient else (0, 1),
        "output_batch_dimension": 2 if gradient else 0,
        "output_feature_dimension": 3,
        "output_spatial_dimensions": (0, 1) if gradient else (1, 2),
    }
    images, kernel = Value(left, "f32"), Value(right, "f32")
    return graph(("convolution", (0, 1), Value(made, "f32"), said), arguments=(images, kernel))


def test_the_features_of_a_convolution_fill_squares_at_each_position() -> None:
    """2.4 million cycles on v3, as the compiler counts for each of these."""
    forward = convolved((8, 256, 256, 64), (3, 3, 64, 8), (8, 256, 256, 8), gradient=False)
    backward = convolved((8, 256, 256, 64), (8, 256, 256, 8), (3, 3, 64, 8), gradient=True)
    for each in (forward, backward):
        assert product_of(each, each.ops[0]).padded(128) == 9 * 128 * 128 * 8 * 256 * 256
        assert product_of(each, each.ops[0]).multiply_adds == 9 * 64 * 8 * 8 * 256 * 256


def test_few_features_fill_half_a_square_at_each_position() -> None:
    few = convolved((8, 256, 256, 8), (3, 3, 8, 64), (8, 256, 256, 64), gradient=False)
    assert product_of(few, few.ops[0]).padded(128) == 4.5 * 128 * 128 * 8 * 256 * 256


def test_features_that_share_no_depth_fill_whole_lanes_of_wide_squares() -> None:
    """The gradient of images that leaves features in rows: 93 thousand cycles on v6e, half of its squares' depth."""
    windows = Windows(taps=9 * 64 * 64, streamed=16, entering=64, leaving=64)
    assert windows.rows(128) == 9 * 64 * 64 * 16
    assert windows.rows(256) == windows.rows(128) / 2


def test_sixteen_images_of_a_register_are_brought_to_the_squares_at_once() -> None:
    loads = [
        windows_of(each, each.ops[0], LATER).loads
        for each in (
            convolved((images, 64, 64, 64), (3, 3, 64, 64), (images, 64, 64, 64), gradient=False)
            for images in (8, 16, 24)
        )
    ]
    assert loads == [9 * 64 * 64, 9 * 64 * 64, 2 * 9 * 64 * 64]


@pytest.mark.parametrize(("size", "window", "us"), [((64, 256), 3, 106.7), ((64, 64), 5, 71.4)])
def test_no_position_of_a_window_stays_alone_in_a_kernels_gradient(
    size: tuple[int, int], window: int, us: float
) -> None:
    """As compiled for v5e, of eight images: 147.2 and 81.9 us if the odd one of three and of five took a depth for
    itself, as it does where images are convolved.
    """
    images, kernel = (8, *size, 64), (window, window, 64, 64)
    made, speed = convolved(images, images, kernel, gradient=True), speed_of(chip("v5e"))
    windows = windows_of(made, made.ops[0], LATER)
    assert windows.rows(128) == windows.taps * windows.streamed / 2
    other = convolved(images, kernel, images, gradient=False)
    assert windows_of(other, other.ops[0], LATER).rows(128) > windows.rows(128)
    work = replace(
        work_of(made, fuse(made).kernels[0]), products=(replace(product_of(made, made.ops[0]), windows=windows),)
    )
    took = cycles_of(work, (True, True), (True,), speed.edge, speed.coefficients)
    assert took.total / speed.clock_hz == pytest.approx(us * 1e-6, rel=0.1)


def test_what_is_rounded_beside_what_a_convolution_writes_is_not_written_twice() -> None:
    """As compiled for v5e: 140.6 us for an image left in the large memory and, rounded, in the fast one."""
    size, kernel = (8, 64, 256, 64), (3, 3, 64, 64)
    one, speed = convolved(size, kernel, size, gradient=False), speed_of(chip("v5e"))
    op = Op(kind="convert", operands=one.ops[0].results, results=(len(one.values),))
    both = replace(one, values=(*one.values, Value(size, "bf16")), ops=(*one.ops, op), results=(2, 3))
    fused = Kernel(ops=(0, 1), reads=both.arguments, writes=both.results)
    windows = windows_of(one, one.ops[0], LATER)
    work = replace(work_of(both, fused), products=(replace(product_of(one, one.ops[0]), windows=windows),))
    assert work.spill_bytes
    took = cycles_of(work, (True, True), (False, True), speed.edge, speed.coefficients)
    assert took.total / speed.clock_hz == pytest.approx(140.6e-6, rel=0.06)


@pytest.mark.parametrize(("dtype", "cycles"), [("f32", 470_819), ("bf16", 579_015)])
def test_images_that_are_cut_pass_in_16_bits_whatever_they_are(dtype: str, cycles: int) -> None:
    """Two images of 128 by 128 with 128 features, as compiled for v5e: cutting them takes most of it, in bfloat16."""
    wide = convolved((2, 128, 128, 128), (3, 3, 128, 128), (2, 128, 128, 128), gradient=False)
    margins = {**wide.ops[0].attributes, "padding": ((1, 1), (1, 1))}
    values = tuple(replace(value, dtype=dtype) for value in wide.values)
    own = replace(wide, values=values, ops=(replace(wide.ops[0], attributes=margins),))
    assert sum(each.cycles for each in price(fuse(own), chip("v5e"))) == pytest.approx(cycles, rel=0.4)


def test_with_the_batch_on_the_lanes_features_are_the_rows() -> None:
    """4.8 million cycles on v3, as the compiler counts; images that fill half the depth at most take half as many."""
    of = 9 * 128 * 128 * 16 * 256 * 256
    for images, parts in ((32, 2), (64, 2), (96, 1), (128, 1)):
        wide = convolved((images, 256, 256, 16), (3, 3, 16, 16), (images, 256, 256, 16), gradient=False)
        assert product_of(wide, wide.ops[0]).padded(128) == of / parts


def test_the_highest_precision_takes_six_passes() -> None:
    g = product(256, 256, 256, "f32")
    precise = replace(g.ops[0], attributes={**g.ops[0].attributes, "precision_config": ("HIGHEST", "HIGHEST")})
    assert product_of(g, precise).passes == 6
    assert product_of(g, g.ops[0]).passes == 1


def test_of_an_array_from_which_it_cuts_a_piece_a_kernel_reads_the_piece() -> None:
    whole, piece = Value((4096, 1024), "f32"), Value((64, 1024), "f32")
    said = {"start_indices": (0, 0), "limit_indices": (64, 1024), "strides": (1, 1)}
    g = graph(
        ("exponential", (0,), whole, {}), ("slice", (1,), piece, said), ("tanh", (2,), piece, {}), arguments=(whole,)
    )
    need = demanded(g, g.ops, g.results)
    assert need[0] == need[1] == 64 * 1024
    (kernel,) = fuse(g).kernels
    work = work_of(g, kernel)
    assert work.reads == (64 * 1024 * 4,)


@pytest.mark.parametrize("turns", [1, 6, 96])
def test_what_is_written_narrow_into_a_stack_costs_by_its_own_elements(turns: int) -> None:
    stack, piece, made = (Value((n, 512, 1024), dtype) for n, dtype in ((turns, "bf16"), (1, "bf16"), (1, "f32")))
    g = graph(
        ("tanh", (1,), made, {}),
        ("convert", (2,), piece, {}),
        ("dynamic_update_slice", (0, 3), stack, {}),
        arguments=(stack, made),
    )
    work = work_of(g, fuse(g).kernels[0])
    assert work.writes == (512 * 1024 * 2,)
    assert work.spill_bytes == 512 * 1024 * 4


@pytest.mark.parametrize("name", sorted(catalogue()))
def test_every_topology_gives_seconds_and_says_where_from(name: str) -> None:
    known = chip(name)
    prices = price(fuse(product(1024, 1024, 1024)), known)
    assert 0 < seconds(prices) < 1
    assert prices[0].flops == 2 * 1024**3
    assert speed_of(known).source


@pytest.mark.parametrize("name", ["v3", "v4", "v5e", "v5p", "v6e"])
def test_large_products_come_near_the_peak_and_never_above_it(name: str) -> None:
    known = chip(name)
    peak = known.peak_flops_per_s("bfloat16")
    rate = 2 * 4096**3 / seconds(price(fuse(product(4096, 4096, 4096)), known))
    assert peak is not None
    assert 0.5 * peak < rate < 1.1 * peak


@pytest.mark.parametrize("precision", ["DEFAULT", "HIGH", "HIGHEST"])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32", "s8"])
@pytest.mark.parametrize("name", sorted(catalogue()))
def test_no_product_takes_less_than_a_search_takes_it_to_take_at_least(name: str, dtype: str, precision: str) -> None:
    """Nor than the roofline has it."""
    known, step = chip(name), product(4096, 4096, 4096, dtype, precision)
    took = seconds(price(fuse(step), known))
    assert Products.of(step).seconds([1], known) <= took
    assert (bound(step, step, known).plan_s or 0.0) <= took


def test_gpus_multiply_float32_as_tfloat32_unless_all_its_bits_are_asked_for() -> None:
    rounded, narrow, precise = (
        seconds(price(fuse(product(8192, 8192, 8192, *said)), chip("a100")))
        for said in (("f32", "HIGH"), ("bf16",), ("f32", "HIGHEST"))
    )
    assert rounded == pytest.approx(312 / 156 * narrow, rel=0.01)
    assert precise == pytest.approx(312 / 19.5 * narrow, rel=0.01)


@pytest.mark.parametrize("name", ["h200", "h100"])
def test_a_measured_gpu_reaches_the_shares_that_were_measured_of_it(name: str) -> None:
    known = chip(name)
    had = known.measured
    assert had is not None
    took = {dtype: seconds(price(fuse(product(8192, 8192, 8192, *dtype), is_gpu=True), known)) for dtype in GPU_DTYPES}
    for dtype, long in GPU_DTYPES.items():
        peak = known.peak_flops_per_s(long, "highest" if long == "float32" else "default")
        assert peak is not None
        assert took[dtype] - had.product_start_us * 1e-6 == pytest.approx(2 * 8192**3 / peak / had.matrix[long])
    summed = product(4096, 4096, 4096, "f32")
    said = {**summed.ops[0].attributes, "lhs_contracting_dimensions": (0,)}
    gradient = replace(summed, ops=(replace(summed.ops[0], attributes=said),))
    assert product_of(gradient, gradient.ops[0]).turned
    assert not product_of(summed, summed.ops[0]).turned
    slower = seconds(price(fuse(gradient, is_gpu=True), known)) / seconds(price(fuse(summed, is_gpu=True), known))
    assert slower == pytest.approx(had.matrix["tfloat32"] / had.turned["tfloat32"], rel=0.01)


def test_a_gpu_passes_what_it_reads_and_writes_once() -> None:
    known = chip("h200")
    had = known.measured
    assert had is not None
    one = Value((65536, 1024), "f32")
    rounded = graph(("convert", (0,), replace(one, dtype="bf16"), {}), arguments=(one,))
    (took,) = price(fuse(rounded, is_gpu=True), known)
    assert known.hbm_bytes_per_s is not None
    moved = 65536 * 1024 * 6
    assert took.seconds == pytest.approx(had.start_us * 1e-6 + moved / known.hbm_bytes_per_s / had.memory)


def test_a_gpus_library_of_convolutions_makes_many_features_at_a_time() -> None:
    few, many = (
        seconds(price(fuse(g, is_gpu=True), chip("h200")))
        for g in (
            convolved((64, 64, 64, 128), (3, 3, 128, features), (64, 64, 64, features), gradient=False)
            for features in (64, 128)
        )
    )
    assert few == pytest.approx(many)


def test_a_gpu_that_nobody_measured_is_guessed() -> None:
    assert "measured" not in speed_of(chip("a100")).source
    for name in ("h200", "h100"):
        assert chip(name).jax_kind in speed_of(chip(name)).source


@pytest.mark.parametrize("name", ["v3", "v5e", "v5p", "v6e"])
def test_elementwise_work_takes_what_its_bytes_take_however_many_operations_it_is(name: str) -> None:
    known = chip(name)
    (short,), (long,) = price(fuse(chain(16384, 2)), known), price(fuse(chain(16384, 2, 6)), known)
    assert long.seconds == pytest.approx(short.seconds, rel=0.1)
    assert short.bound == "memory"
    moved = 3 * 16384 * 1024 * 4
    assert short.num_bytes == moved
    assert known.hbm_bytes_per_s is not None
    assert 0.5 < moved / short.seconds / known.hbm_bytes_per_s < 1.1


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(["v3", "v5e", "h100"]), st.integers(1, 12), st.integers(2, 4))
def test_more_rows_and_more_arrays_never_take_less(name: str, rows: int, arrays: int) -> None:
    known = chip(name)
    here = seconds(price(fuse(chain(rows * 256, arrays, 4)), known))
    assert seconds(price(fuse(chain(rows * 256 + 256, arrays, 4)), known)) >= here
    assert seconds(price(fuse(chain(rows * 256, arrays + 1, 4)), known)) >= here


@pytest.mark.parametrize(("name", "has_near"), [("v3", False), ("v4", False), ("v5e", True), ("tpu7x", True)])
def test_a_memory_of_its_own_beside_vector_memory_is_not_near(name: str, has_near: bool) -> None:
    """v4's compiler keeps buffers in a memory that its cores share, and counts as many cycles for it as for any."""
    assert (first_guess(chip(name)).near_total_bytes > 0) == has_near


@pytest.mark.parametrize("carried", [True, False])
def test_a_conversion_of_what_no_turn_changes_is_done_once(carried: bool) -> None:
    """Its price is spread over the turns; what turns change is converted at each."""
    stack, narrow = Value((64, 1024), "f32"), Value((64, 1024), "bf16")
    values = (stack, stack, narrow, stack)
    ops = (
        Op(kind="convert", operands=(0,), results=(2,)),
        Op(kind="tanh", operands=(1,), results=(3,)),
    )
    results = (3, 1, 2) if carried else (0, 3, 2)
    body = Graph(values=values, ops=ops, arguments=(0, 1), results=results)
    loop = Op(kind="while", operands=(0, 1), results=(2, 3), bodies=(body,), trips=8)
    outer = Graph(values=(stack,) * 4, ops=(loop,), arguments=(0, 1), results=(2, 3))
    convert = next(p for p in price(fuse(outer), chip("v3")) if p.kernel.writes == (2,))
    alone = Graph(values=(stack, narrow), ops=(replace(ops[0], results=(1,)),), arguments=(0,), results=(1,))
    (once,) = price(fuse(alone), chip("v3"))
    assert convert.times == 8
    assert convert.seconds == pytest.approx(once.seconds / (1 if carried else 8))


def test_loops_count_by_their_turns() -> None:
    body = chain(1024, 2)
    loop = Op(kind="while", operands=(0, 1), results=(2, 3), bodies=(replace(body, results=(2, 3)),), trips=9)
    g = Graph(values=(*body.values[:2], *body.values[:2]), ops=(loop,), arguments=(0, 1), results=(2, 3))
    inside = price(fuse(replace(body, results=(2, 3))), chip("v3"))
    assert seconds(price(fuse(g), chip("v3"))) == pytest.approx(9 * seconds(inside))


def test_gathers_are_priced_by_their_bytes_and_marked() -> None:
    table, ids, rows = Value((32000, 1024), "f32"), Value((512, 1), "s32"), Value((512, 1024), "f32")
    (found,) = price(fuse(graph(("gather", (0, 1), rows, {}), arguments=(table, ids))), chip("v5e"))
    assert not found.counted
    assert 0 < found.seconds < 1e-4


def test_reshapes_are_free() -> None:
    g = graph(("reshape", (0,), Value((1024, 2048), "f32"), {}), arguments=(Value((2048, 1024), "f32"),))
    assert seconds(price(fuse(g), chip("v5e"))) == 0


def test_what_was_just_made_is_at_hand_where_vector_memory_is_large() -> None:
    hidden = Value((1024, 4096), "bf16")
    x, up, down = Value((1024, 1024), "bf16"), Value((1024, 4096), "bf16"), Value((4096, 1024), "bf16")
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    g = graph(("dot_general", (0, 1), hidden, said), ("dot_general", (3, 2), x, said), arguments=(x, up, down))
    roomy = price(fuse(g), chip("v5e"))
    assert roomy[1].num_bytes < price(fuse(g), chip("v3"))[1].num_bytes


@pytest.mark.parametrize("near", [0, 1])
def test_an_operand_at_hand_lets_the_other_be_read_once(near: int) -> None:
    whole = product(32768, 2048, 32768, "f32")
    work = work_of(whole, fuse(whole).kernels[0])
    of = speed_of(chip("v5e")).coefficients
    far_bytes = work.reads[1 - near] + work.writes[0]
    took = cycles_of(replace(work, products=()), [near == 0, near == 1], [False], 128, of)
    assert far_bytes * of.byte_cycles < took.total < 1.5 * far_bytes * of.byte_cycles


@pytest.mark.parametrize(("name", "rows", "near", "cycles"), [("v5e", 512, 0, 10_728), ("v6e", 1280, 1, 9_317)])
def test_one_operation_alone_goes_through_little_at_once(name: str, rows: int, near: int, cycles: int) -> None:
    """Cycles compiled for a conversion of so many registers; thousands wait for memory every 128 registers."""
    wide, made = Value((rows, 1024), "f32"), Value((rows, 1024), "bf16")
    g = graph(("convert", (0,), made, {}), arguments=(wide,))
    of = speed_of(chip(name)).coefficients
    took = cycles_of(work_of(g, fuse(g).kernels[0]), [bool(near)], [True], 128, of)
    assert took.total == pytest.approx(cycles, rel=0.15)
    whole = replace(of, whole_bytes=0.0)
    assert cycles_of(work_of(g, fuse(g).kernels[0]), [bool(near)], [True], 128, whole).total > 1.4 * cycles


@pytest.mark.parametrize(("name", "counts"), [("v5e", True), ("v6e", False)])
def test_what_is_at_hand_costs_a_chain_nothing_where_the_compiler_knows_it(name: str, counts: bool) -> None:
    g = chain(4096, 3)
    work, of = work_of(g, fuse(g).kernels[0]), speed_of(chip(name)).coefficients
    far, near = (cycles_of(work, [each] * len(work.reads), [False], 128, of).total for each in (False, True))
    assert (far == near) == counts
    assert far - near == pytest.approx(0.0 if counts else sum(work.reads) * of.byte_cycles)


@pytest.mark.parametrize(("name", "cycles"), [("v3", 852_000), ("v5e", 1_390_000), ("v5p", 600_000)])
def test_products_of_a_batch_wait_each_for_their_first_pieces(name: str, cycles: int) -> None:
    """Cycles compiled for 32 products of [2048, 1024] with [1024, 512], on v3 of [2048, 256] with [256, 1024]."""
    depth, columns = (256, 1024) if name == "v3" else (1024, 512)
    left, right = Value((32, 2048, depth), "f32"), Value((32, depth, columns), "f32")
    said = {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (1,)}
    said |= {"lhs_batching_dimensions": (0,), "rhs_batching_dimensions": (0,)}
    g = graph(("dot_general", (0, 1), Value((32, 2048, columns), "f32"), dict(said)), arguments=(left, right))
    work, of = work_of(g, fuse(g).kernels[0]), speed_of(chip(name)).coefficients
    assert cycles_of(work, [False, False], [False], 128, of).total == pytest.approx(cycles, rel=0.15)


def test_an_update_behind_a_product_adds_to_it() -> None:
    """A gradient of [1024, 2048] over 4096 rows and the three results of Adam: 429 thousand cycles compiled for v3."""
    gradient = product(1024, 4096, 2048)
    work = work_of(gradient, fuse(gradient).kernels[0])
    state = (padded_bytes(Value((1024, 2048), "f32")),) * 3
    updating = replace(work, reads=(*work.reads, *state), writes=state, sides=(*work.sides, ONCE, ONCE, ONCE))
    of = speed_of(chip("v3")).coefficients
    took = cycles_of(updating, [False] * 5, [False] * 3, 128, of)
    assert took.total == pytest.approx(429_000, rel=0.1)


@pytest.mark.parametrize("name", ["v3", "v4", "v5e", "v5p", "v6e", "tpu7x"])
def test_tables_ship_with_the_error_of_their_fit_on_programs_that_it_did_not_see(name: str) -> None:
    table = shipped(chip(name).jax_kind)
    assert table is not None
    assert table.compiler.startswith("libtpu ")
    assert table.error.programs >= 20
    assert 0 < table.error.median < 0.15
    assert load(dump(table)) == table


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the file is no mapping"),
        ("[]", "the file is no mapping"),
        ("a: [", "it is no YAML"),
        ("coefficients: 3", "jax_kind is missing; .*programs is missing"),
        ("jax_kind: x\ncolour: red", "colour is not known"),
    ],
)
def test_what_is_no_calibration_is_refused_with_what_it_lacks(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load(text)


@pytest.mark.parametrize("value", [".nan", "-1.0", ".inf", "many", "true"])
def test_a_calibration_of_numbers_that_no_cycles_can_be_is_refused(value: str) -> None:
    table = shipped(chip("v3").jax_kind)
    assert table is not None
    text = dump(table).replace(f"step_cycles: {table.coefficients.step_cycles}", f"step_cycles: {value}", 1)
    with pytest.raises(ValueError, match=r"coefficients\.step_cycles is .*, not a number from 0"):
        load(text)


def test_prices_that_no_compiler_taught_say_what_is_published_and_what_is_a_round_figure() -> None:
    box = chip("a100").model_copy(update={"hbm_gb_per_s": None})
    assert speed_of(chip("a100")).source.startswith("published peaks, of which 75%")
    assert speed_of(box).source.endswith("; round figures, no machine's, for memory (20 GB/s)")
    assert speed_of(chip("cpu")).source.startswith("round figures, no machine's, for products (100 GFLOP/s), memory")
    assert "published" not in speed_of(chip("cpu")).source


def test_a_fit_finds_the_numbers_that_made_the_cycles() -> None:
    true = first_guess(chip("v3"))
    programs = [fuse(chain(rows, arrays)) for rows in (256, 2048, 16384) for arrays in (2, 3)]
    programs += [fuse(product(n, k, n)) for n in (512, 2048) for k in (512, 4096)]
    blank = [Measured(name=str(number), program=each, cycles=1.0) for number, each in enumerate(programs)]
    measured = [replace(each, cycles=each.predicted_cycles(true, 128)) for each in blank]
    begin = replace(true, byte_cycles=true.byte_cycles * 2, multiply_add_cycles=true.multiply_add_cycles / 2)
    found = fit(measured, begin, 128)
    assert errors(measured, found, 128)[0] < 0.03
    assert found.byte_cycles == pytest.approx(true.byte_cycles, rel=0.1)
    assert found.multiply_add_cycles == pytest.approx(true.multiply_add_cycles, rel=0.1)


def test_a_fit_leaves_what_only_whole_programs_show() -> None:
    known = shipped(chip("v6e").jax_kind)
    assert known is not None
    begin = first_guess(chip("v6e"))
    assert (begin.near_read_share, begin.batch_fills) == (0.0, 1.0)
    assert begin.whole_bytes == known.coefficients.whole_bytes > 0
    blank = [Measured(name="", program=fuse(chain(2048, 3)), cycles=1e6)]
    found = fit(blank, begin, 256)
    assert found != begin
    assert found.whole_bytes == begin.whole_bytes


def test_a_calibration_of_ones_own_is_used_in_place_of_the_table() -> None:
    slow = Coefficients(**{name: 10 * value for name, value in asdict(first_guess(chip("v5e"))).items()})
    own = Calibration(
        jax_kind="TPU v5 lite",
        topology="v5e:2x2",
        compiler="libtpu 0",
        programs=1,
        error=FitError(programs=1, median=0.5, p95=0.5),
        coefficients=slow,
    )
    program: Program = fuse(product(2048, 2048, 2048))
    assert seconds(price(program, chip("v5e"), own)) > 3 * seconds(price(program, chip("v5e")))
    assert math.isfinite(seconds(price(program, chip("v5e"), own)))


@pytest.mark.parametrize(("size", "passes"), [(128, 1.5), (2048, 4.5)])
def test_a_running_sum_goes_over_its_numbers_several_times_and_is_counted(size: int, passes: float) -> None:
    """Long ones are sums of blocks' sums: on v4 some nine times their bytes in all."""
    value = Value((64, size, 128), "f32")
    said = {"window_dimensions": (1, size, 1)}
    op = Op(kind="reduce_window", operands=(0,), results=(1,), attributes=said)
    graph = Graph(values=(value, value), ops=(op,), arguments=(0,), results=(1,))
    (found,) = price(fuse(graph), catalogue()["v4"])
    speed = speed_of(catalogue()["v4"])
    assert found.counted
    assert found.cycles == pytest.approx(passes * 2 * value.num_bytes * speed.coefficients.byte_cycles)
