"""How products are split: hand-computed cases of the layouts that matter, and laws over random ones."""

from __future__ import annotations

from dataclasses import replace

import pytest
from extent import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.dsl.machine import parse_topology
from meshwright.planner.graph import Axes, Factors, Op, Value
from meshwright.planner.partition.dot import Choice, Loops, choose
from meshwright.planner.partition.dot.problem import Ask, axes_of
from meshwright.planner.partition.products import convolution_rule
from meshwright.planner.partition.strategy import Asked
from meshwright.planner.partition.target import Target, target
from meshwright.planner.topology import physical
from programs import CONVOLVED

MESH = {"x": 4, "y": 8}
M, N, K, B = 0, 1, 2, 3


def product(left: dict[int, Axes], right: dict[int, Axes], result: dict[int, Axes], **more: object) -> Choice:
    """The choice for ``[m, k] @ [k, n]``, all dims of 8192."""
    loops = Loops(
        sizes=(8192, 8192, 8192),
        left=(M, K),
        right=(K, N),
        result=(M, N),
        bits=(32, 32, 32),
        mesh=MESH,
        **more,  # type: ignore[arg-type]
    )
    return choose(loops, Ask(left=left, right=right, result=result, axes=frozenset(MESH)))


def test_data_parallel_needs_nothing() -> None:
    found = product({M: ("x", "y")}, {}, {M: ("x", "y")})
    assert (found.left, found.right, found.reductions) == ({M: ("x", "y")}, {}, ())


def test_fully_sharded_weights_are_gathered() -> None:
    found = product({M: ("x", "y")}, {K: ("x", "y")}, {M: ("x", "y")})
    assert axes_of(found.right) == ()
    assert found.reductions == ()


def test_a_split_sum_is_reduced_over_its_axes() -> None:
    found = product({M: ("x",), K: ("y",)}, {K: ("y",)}, {M: ("x",)})
    assert [r.axes for r in found.reductions] == [("y",)]
    assert found.left[K] == found.right[K] == ("y",)


def test_a_sum_whose_parts_are_kept_apart_is_scattered() -> None:
    found = product({K: ("x", "y")}, {K: ("x", "y")}, {M: ("x", "y")})
    assert [(r.axes, dict(r.scattered)) for r in found.reductions] == [(("x", "y"), {M: ("x", "y")})]


def test_fsdp_and_tensor_parallel_gather_the_weights_over_the_data_axis() -> None:
    found = product({M: ("x",)}, {K: ("x",), N: ("y",)}, {M: ("x",), N: ("y",)})
    assert (dict(found.right), found.reductions) == ({N: ("y",)}, ())


def test_an_operand_that_fits_no_group_is_split_as_the_others_would_have_it() -> None:
    """As compiled: rows split over all devices become parts of the sum, where the other operand has these."""
    found = product({M: ("x",), K: ("y",)}, {N: ("x", "y")}, {M: ("x",)})
    assert (dict(found.left), dict(found.right)) == ({M: ("x",), K: ("y",)}, {K: ("y",)})
    assert [r.axes for r in found.reductions] == [("y",)]


def test_a_long_product_hides_its_sum_in_a_loop_of_permutes() -> None:
    split: dict[int, Axes] = {K: ("x", "y")}
    assert product(split, split, {M: ("x", "y")}, window_flops_per_byte=2000.0).windowed is not None
    assert product(split, split, {M: ("x", "y")}, window_flops_per_byte=3000.0).windowed is None
    assert product(split, split, {M: ("x", "y")}, window_flops_per_byte=2000.0, fewest_parts=64).windowed is None


def test_devices_are_grouped_so_that_a_gather_hides_in_a_loop() -> None:
    """Of rows and columns that both may group, the columns: the rows' axis is that of the weights' gather."""
    layouts: tuple[dict[int, Axes], ...] = ({M: ("y",)}, {K: ("y",), N: ("x",)}, {M: ("y",), N: ("x",)})
    found = product(*layouts, window_flops_per_byte=100.0)
    assert found.windowed is not None
    assert found.windowed.axes == ("y",)
    assert product(*layouts, window_flops_per_byte=None).windowed is None


def test_a_gather_that_another_product_shares_is_not_looped() -> None:
    split: dict[int, Axes] = {K: ("x", "y")}
    rows: dict[int, Axes] = {M: ("x", "y")}
    assert product(rows, split, rows, window_flops_per_byte=1000.0).windowed is not None
    assert product(rows, split, rows, window_flops_per_byte=1000.0, shared=(False, True)).windowed is None


GRADIENT: tuple[dict[int, Axes], dict[int, Axes]] = {K: ("x",), M: ("y",)}, {K: ("x",), N: ("y",)}
IN_LOOPS = {"window_flops_per_byte": 100.0, "fewest_parts": 4}


def test_a_sum_hides_in_a_loop_beside_a_gather_of_the_right_operand_and_not_of_the_left() -> None:
    """As gradients of weights split along both dims compiled for v6e: the gather makes the other operand whole along
    the axis that groups the devices.
    """
    assert product(*GRADIENT, {M: ("y",), N: ("x",)}, **IN_LOOPS).windowed is not None
    assert product(*GRADIENT, {M: ("x",), N: ("y",)}, **IN_LOOPS).windowed is None


@pytest.mark.parametrize(
    ("split", "through"),
    [
        ({M: ("x",)}, {M: ("y:(1)4",), B: ("x",)}),  # permuted to where its own rows lie along part of y, then gathered
        ({M: ("x",), N: ("y",)}, {B: ("x",), N: ("y",)}),  # nothing is left over: the axis moves from dim to dim
    ],
)
def test_an_operand_of_a_batch_keeps_its_parts_along_spare_axes(
    split: dict[int, Axes], through: dict[int, Axes]
) -> None:
    """As what experts made compiled for v4:2x2x4, batch over groups: ``gsec,egcm->gsm`` on 4x8, experts along x."""
    loops = Loops(
        sizes=(64, 64, 64, 64),
        left=(B, M, K),
        right=(M, B, K, N),
        result=(B, N),
        bits=(32, 32, 32),
        mesh=MESH,
    )
    groups: dict[int, Axes] = {B: ("x",)}
    found = choose(loops, Ask(left=groups, right=split, result=groups, axes=frozenset(MESH)))
    assert dict(found.paths[1][0]) == through


def test_a_convolution_beside_a_gather_is_not_looped() -> None:
    """As gradients of a convolution's weights compiled for v5e: the window is a dim of the result alone."""
    sizes, window = (8192, 8192, 8192, 1), 3
    dims = {"left": (M, K), "right": (K, N), "result": (M, N, window), "bits": (32, 32, 32)}
    loops = Loops(sizes=sizes, mesh=MESH, **dims, **IN_LOOPS)  # type: ignore[arg-type]
    left, right = GRADIENT
    ask = Ask(left=left, right=right, result={M: ("y",), N: ("x",)}, axes=frozenset(MESH))
    assert choose(loops, ask).windowed is None
    assert choose(loops, replace(ask, right={K: ("x",)})).windowed is not None


def test_the_sum_of_a_kernel_s_gradient_is_looped_beside_a_gather_of_its_images() -> None:
    """As compiled for v5e, v5p and v6e of nets split both ways: images are gathered by features, and cut again."""
    dims = {"left": (M, K), "right": (K, N), "result": (M, N, 3), "bits": (32, 32, 32)}
    loops = Loops(sizes=(8192, 8192, 8192, 1), mesh=MESH, **dims, **IN_LOOPS)  # type: ignore[arg-type]
    left, right = GRADIENT
    found = choose(loops, Ask(left=left, right=right, result={M: ("x",), N: ("y",)}, axes=frozenset(MESH)))
    assert found.windowed is not None
    assert (found.windowed.moving, found.windowed.axes) == (None, ("x",))


def test_a_kernel_s_gradient_is_as_long_as_its_convolution_where_that_moves_on_by_two() -> None:
    """Nine places of a window are counted as four of two steps each, which the gradient's result alone has: a net's
    for v6e is summed in a loop where the convolution goes round in one (compiled: 33 permutes of 0.8 MiB, all-reduce
    predicted).
    """
    places, step, batch, features, kernels = range(5)
    loops = Loops(
        sizes=(784, 4, 32, 128, 128),
        left=(batch, places, features),
        right=(batch, places, kernels),
        result=(step, features, kernels),
        bits=(32, 32, 32),
        mesh=MESH,
        window_flops_per_byte=4800.0,
    )
    split: dict[int, Axes] = {batch: ("x", "y")}
    assert loops.flops(split) == 2 * 784 * 4 * 128 * 128
    ask = Ask(left=split, right=split, result={kernels: ("x", "y")}, axes=frozenset(MESH))
    assert choose(loops, ask).windowed is not None
    assert choose(replace(loops, sizes=(196, 4, 32, 128, 128)), ask).windowed is None


@pytest.mark.parametrize(("size", "stride", "is_looped"), [(1, 1, False), (1, 2, True), (3, 1, True)])
def test_a_kernel_that_another_convolution_reads_is_gathered_where_both_are_products(
    size: int, stride: int, is_looped: bool
) -> None:
    """As compiled for v5p: nets of 1x1 windows that move on by two send the kernel round in loops, forward and back."""
    images, kernel = Value((32, 64, 64, 256), "bf16"), Value((size, size, 256, 256), "bf16")
    made = Value((32, 64 // stride, 64 // stride, 256), "bf16")
    steps = {"window_strides": (stride, stride), "rhs_dilation": (1, 1), "lhs_dilation": (1, 1)}
    edges = {"padding": ((size // 2, size // 2),) * 2}
    batch, features, rows, columns, window, inner = range(6)
    op = Op(
        kind="convolution",
        operands=(0, 1),
        results=(2,),
        attributes=CONVOLVED | steps | edges,
        factors=Factors(
            sizes=(32, 256, 64, 64, size, 256),
            operands=(((batch,), (rows,), (columns,), (inner,)), ((window,), (window,), (inner,), (features,))),
            results=(((batch,), (rows,), (columns,), (features,)),),
        ),
    )
    split: Axes = ("x", "y")
    asked = Asked(
        op=op,
        reads=(images, kernel),
        makes=(made,),
        operands=((split, (), (), ()), ((), (), (), split)),
        results=((split, (), (), ()),),
        mesh=MESH,
        target=Target(32, window_flops_per_byte=100.0),
        shared=(False, True),
    )
    assert (convolution_rule(asked).window is not None) == is_looped


@pytest.mark.parametrize(("topology", "parts"), [("v4:2x2x4", 8), ("v5e:4x4", 4), ("v3:4x4", 8)])
def test_convolutions_are_looped_from_so_many_parts_on(topology: str, parts: int) -> None:
    """As compiled: of nets for v4 with kernels in four parts none has a loop, of products some have."""
    machine = physical(parse_topology(topology))
    assert target("tpu", machine, machine.num_devices).fewest_convolved == parts


def test_devices_are_not_grouped_for_a_loop_that_a_gather_comes_before() -> None:
    """As a convolution's own gradient compiled for v5e: the weights, which are small, are gathered and not looped."""
    loops = Loops(
        sizes=(262144, 128, 128), left=(M, K), right=(K, N), result=(M, N), bits=(32, 16, 32), mesh=MESH, **IN_LOOPS
    )  # type: ignore[arg-type]
    ask = Ask(
        left={M: ("x",), K: ("y",)}, right={K: ("x",), N: ("y",)}, result={M: ("x",), N: ("y",)}, axes=frozenset(MESH)
    )
    assert choose(loops, ask).windowed is None


def test_the_sum_of_a_group_is_weighed_against_that_group_s_own_result() -> None:
    found = product({M: ("x",)}, {K: ("y",)}, {M: ("x",)})
    assert (dict(found.left), dict(found.right)) == ({M: ("x",), K: ("y",)}, {K: ("y",)})
    assert [r.axes for r in found.reductions] == [("y",)]


def test_an_operand_keeps_what_meets_the_other_or_the_result() -> None:
    sums = product({K: ("x", "y")}, {K: ("x",), N: ("y",)}, {N: ("y",)})
    assert (dict(sums.left), [r.axes for r in sums.reductions]) == ({K: ("x",)}, [("x",)])
    rows = product({M: ("x", "y")}, {N: ("x",)}, {M: ("y",), N: ("x",)})
    assert (dict(rows.left), dict(rows.right)) == ({M: ("y",)}, {N: ("x",)})
    assert not axes_of(product({M: ("x", "y")}, {N: ("x",)}, {N: ("x",)}).left)


def test_a_split_of_the_sum_that_the_result_needs_elsewhere_is_not_kept() -> None:
    kept = product({K: ("x", "y")}, {K: ("x",), N: ("y",)}, {N: ("y",)})
    assert [r.axes for r in kept.reductions] == [("x",)]
    whole = product({K: ("x", "y")}, {K: ("x",), N: ("y",)}, {M: ("x",), N: ("y",)})
    assert (whole.reductions, dict(whole.left), dict(whole.right)) == ((), {M: ("x",)}, {N: ("y",)})


def test_axes_in_the_way_give_place_to_spare_ones() -> None:
    found = product({M: ("x",)}, {N: ("x",)}, {N: ("x",)})
    assert {M: ("y",)} in found.paths[0]
    assert not axes_of(found.left)


def test_where_nothing_matches_operands_are_laid_out_as_the_result() -> None:
    found = product({K: ("x",)}, {K: ("y",)}, {M: ("y",)})
    assert (dict(found.left), dict(found.right), found.reductions) == ({M: ("y",)}, {}, ())


@st.composite
def splits(draw: st.DrawFn, factors: tuple[int, ...]) -> dict[int, Axes]:
    places = {axis: draw(st.sampled_from((*factors, None))) for axis in draw(st.permutations(sorted(MESH)))}
    made: dict[int, Axes] = {}
    for axis, factor in places.items():
        if factor is not None:
            made[factor] = (*made.get(factor, ()), axis)
    return made


@settings(max_examples=examples(100, 300))
@given(splits((B, M, K)), splits((B, K, N)), splits((B, M, N)))
def test_operands_agree_and_partial_sums_are_summed(
    left: dict[int, Axes], right: dict[int, Axes], result: dict[int, Axes]
) -> None:
    loops = Loops(
        sizes=(64, 64, 64, 64), left=(B, M, K), right=(B, K, N), result=(B, M, N), bits=(32, 32, 32), mesh=MESH
    )
    found = choose(loops, Ask(left=left, right=right, result=result, axes=frozenset(MESH)))
    for factor in (B, K):
        assert found.left.get(factor, ()) == found.right.get(factor, ())
    for split in (found.left, found.right, found.raw, found.made):
        axes = axes_of(split)
        assert len(axes) == len(set(axes))
    assert {a for r in found.reductions for a in r.axes} == set(found.left.get(K, ()))
    for factor, side in ((B, found.left), (M, found.left), (N, found.right)):
        assert found.raw.get(factor, ()) == side.get(factor, ())
