"""Few images in parts that are normed: what is put together and parted again, and what is written."""

from __future__ import annotations

import pytest
from meshwright.planner.fusion import fuse
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import TURNED_COPY
from programs import CONVOLVED
from test_fusion import Writer

PLACES, NEAR = 128, 2**26
STRIDED = CONVOLVED | {"padding": ((0, 1), (0, 1)), "window_strides": (2, 2)}
OF_ONE_PLACE = CONVOLVED | {"padding": ((0, 0), (0, 0))}


def normed(
    batch: int = 4,
    *,
    groups: int = 0,
    over: str = "each",
    window: int = 3,
    moves_on: bool = False,
    dim: int | None = None,
    near_bytes: int = NEAR,
) -> Program:
    """Images between two convolutions, their mean over ``each`` or ``all`` of them taken away, and squared; of groups
    of features where there are some. Another convolution reads them that ``moves_on`` by two places. The second reads
    them beside what is put to them along a ``dim``.
    """
    features = 64
    w = Writer()
    said = CONVOLVED if window > 1 else OF_ONE_PLACE
    whole, kernel = (batch, PLACES, PLACES, features), w.arg(window, window, features, features, dtype="bf16")
    image = w.op("convolution", w.arg(*whole, dtype="bf16"), kernel, shape=whole, **said)
    wide = w.op("convert", image, dtype="f32")
    shape = (*whole[:3], groups, features // groups) if groups else whole
    seen = w.op("reshape", wide, shape=shape) if groups else wide
    summed = [1, 2, *([0] if over == "all" else []), *([4] if groups else [])]
    mean, kept = w.total(seen, *sorted(summed)), tuple(dim for dim in range(len(shape)) if dim not in summed)
    apart = w.op("subtract", seen, w.spread(mean, *shape, dims=kept))
    square = w.op("multiply", apart, apart)
    back = w.op("convert", w.op("reshape", square, shape=whole) if groups else square, dtype="bf16")
    read = w.op("abs", back)
    if dim is not None:
        strip = [1 if along == dim else size for along, size in enumerate(whole)]
        beside = [size + (along == dim) for along, size in enumerate(whole)]
        joined = w.op("concatenate", read, w.arg(*strip, dtype="bf16"), shape=tuple(beside), dimension=dim)
        return fuse(w.graph(w.op("convolution", joined, kernel, shape=whole, **said)))
    ends = [w.op("convolution", read, kernel, shape=whole, **said)]
    if moves_on:
        half = (batch, PLACES // 2, PLACES // 2, features)
        ends.append(w.op("convolution", read, kernel, shape=half, **STRIDED))
    return fuse(w.graph(*ends), near_bytes=near_bytes)


def copied(program: Program) -> list[tuple[int, ...]]:
    """The shapes of the copies between images and their parts."""
    return [program.graph.shape(op.results[0]) for op in program.graph.of_kind(TURNED_COPY)]


def written(program: Program) -> list[tuple[set[str], tuple[int, ...]]]:
    """What kernels compute without a convolution that leave images, and the shapes of these."""
    graph, found = program.graph, list[tuple[set[str], tuple[int, ...]]]()
    for kernel in program.kernels:
        kinds, shape = {graph.ops[number].kind for number in kernel.ops}, graph.shape(kernel.writes[0])
        is_computed = kinds.isdisjoint({"convolution", TURNED_COPY}) and kinds - {"broadcast_in_dim", "reshape"}
        if is_computed and len(shape) > 2:
            found.append((kinds, shape))
    return found


@pytest.mark.parametrize("groups", [0, 8])
def test_images_normed_alone_are_put_together_and_what_is_known_of_them_is_parted(groups: int) -> None:
    """Four images of 128 by 128 of 64 features, as compiled for v4, v5e, v5p and v6e: f32[128,32,17,64] is copied to
    f32[128,4,136,64], its rows on the lanes, and what is spread over such is copied back.
    """
    assert copied(normed(groups=groups)) == [(4, PLACES, 64, PLACES), (4, PLACES, PLACES, 64)]


def test_images_normed_together_stay_in_parts() -> None:
    assert copied(normed(over="all")) == []


@pytest.mark.parametrize("near_bytes", [NEAR, 0])
def test_single_images_are_put_together_where_no_others_are_cut(near_bytes: int) -> None:
    """As compiled for v3, but not for v5e: f32[1,8] of its groups is of all that there is."""
    assert bool(copied(normed(batch=1, near_bytes=near_bytes))) == (near_bytes == 0)


def test_images_that_are_not_cut_stay_as_they_are() -> None:
    assert copied(normed(batch=8)) == []


def test_images_whose_parts_have_no_margins_are_reduced_as_these_lie() -> None:
    """As f32[64,32,8,64] for v5e, which is added up to f32[32,64]."""
    assert copied(normed(window=1)) == []


def test_groups_of_features_are_one_dim_of_what_lies_in_parts() -> None:
    assert written(normed(groups=8))
    assert all(shape == (4, PLACES, PLACES, 64) for _, shape in written(normed(groups=8)))


def test_images_that_are_parted_anew_are_computed_with_as_they_are_put_together() -> None:
    """As compiled for v5e: f32[128,4,136,32] has its rows on the lanes all along, and is copied where convolutions
    make it or read it.
    """
    program = normed(moves_on=True)
    together, parts = (4, PLACES, 64, PLACES), (4, PLACES, PLACES, 64)
    assert copied(program) == [together, parts, parts]
    assert all(shape == together for _, shape in written(program))


@pytest.mark.parametrize("over", ["all", "each"])
def test_what_is_normed_is_written_for_a_convolution_of_its_parts(over: str) -> None:
    """As compiled for v5e: parts are put beside each other's edges, which computes nothing."""
    assert any("abs" in kinds for kinds, _ in written(normed(over=over)))


@pytest.mark.parametrize(("dim", "is_written"), [(1, True), (3, False)])
def test_what_is_normed_is_written_where_neighbours_rows_are_put_beside_it(dim: int, *, is_written: bool) -> None:
    """As compiled for v5e and v6e: rows are split over devices, each of which puts images together."""
    assert copied(normed(dim=dim)) == ([(4, PLACES, 64, PLACES), (4, PLACES, PLACES, 64)] if is_written else [])


def test_a_convolution_of_single_places_computes_what_is_normed() -> None:
    assert not any("abs" in kinds for kinds, _ in written(normed(over="all", window=1)))


def test_parts_of_a_strided_gradient_meet_others_that_are_parted_anew() -> None:
    """As compiled for v5p: gradients of strided convolutions lie as bf16[128,32,18,64], what was normed before as
    f32[128,32,17,64], which is copied to f32[128,4,136,64] and to f32[128,32,18,64].
    """
    w = Writer()
    whole, half, kernel = (4, PLACES, PLACES, 64), (4, PLACES // 2, PLACES // 2, 64), (3, 3, 64, 64)
    image = w.op("convolution", w.arg(*whole, dtype="bf16"), w.arg(*kernel, dtype="bf16"), shape=whole, **CONVOLVED)
    mean = w.spread(w.total(w.op("convert", image, dtype="f32"), 0, 1, 2), *whole, dims=(3,))
    apart = w.op("convert", w.op("subtract", w.op("convert", image, dtype="f32"), mean), dtype="bf16")
    gaps = CONVOLVED | {"padding": ((2, 1), (2, 1)), "lhs_dilation": (2, 2)}
    back = w.op("convolution", w.arg(*half, dtype="bf16"), w.arg(*kernel, dtype="bf16"), shape=whole, **gaps)
    ends = [w.op("convolution", apart, w.arg(*kernel, dtype="bf16"), shape=whole, **CONVOLVED)]
    program = fuse(w.graph(*ends, w.op("multiply", apart, back)))
    assert copied(program) == [(4, PLACES, 64, PLACES), whole]
