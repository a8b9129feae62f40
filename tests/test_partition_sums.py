"""Sums of sums over devices."""

from __future__ import annotations

from dataclasses import replace

import pytest
from meshwright.planner.estimate.traffic import held_bytes
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, COLLECTIVE_PERMUTE, REDUCE_SCATTER
from meshwright.planner.partition.passes.accumulated import sum_behind_loops
from meshwright.planner.partition.passes.narrow import narrow
from meshwright.planner.partition.passes.same_gathers import share_gathers
from meshwright.planner.partition.passes.scatters import kept_dims, padding_tiles, scatter
from meshwright.planner.partition.passes.sliced import slice_sums
from meshwright.planner.partition.passes.sums_of_sums import reassociate
from meshwright.planner.partition.reshard import SLICE
from meshwright.planner.partition.target import FEWEST_ROWS, RING_BYTES, Target
from programs import of_ops


def test_sums_are_reduced_once_behind_what_both_are_moved_by() -> None:
    sums = Value((8, 4), "f32")
    turned, slices = Value((4, 8), "f32"), Value((2, 8), "f32")
    ops = []
    for start in (0, 4):
        ops += [
            Op(kind=ALL_REDUCE, operands=(start,), results=(start + 1,), attributes={"axes": ("x",), "reducer": "add"}),
            Op(kind="transpose", operands=(start + 1,), results=(start + 2,), attributes={"permutation": (1, 0)}),
            Op(kind="dynamic_slice", operands=(start + 2,), results=(start + 3,), attributes={"slice_sizes": (2, 8)}),
        ]
    ops.append(Op(kind="add", operands=(3, 7), results=(8,)))
    values = (sums, sums, turned, slices) * 2 + (slices,)
    found = reassociate(of_ops(values, tuple(ops), (0, 4), (8,)).graph)
    assert [op.kind for op in found.ops] == ["add", ALL_REDUCE, "transpose", "dynamic_slice"]
    assert found.ops[0].operands == (0, 4)
    assert [found.shape(op.results[0]) for op in found.ops] == [(8, 4), (8, 4), (4, 8), (2, 8)]
    assert found.results == (8,) == found.ops[-1].results


def test_sums_that_are_moved_apart_are_not_joined() -> None:
    square = Value((4, 4), "f32")
    reduced = {"axes": ("x",), "reducer": "add"}
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes=reduced),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes=reduced),
        Op(kind="transpose", operands=(1,), results=(4,), attributes={"permutation": (1, 0)}),
        Op(kind="add", operands=(4, 3), results=(5,)),
    )
    found = reassociate(of_ops((square,) * 6, ops, (0, 2), (5,)).graph)
    assert found.ops == ops


@pytest.mark.parametrize("begins", ["broadcast_in_dim", "allocate", "copy"])
@pytest.mark.parametrize("read_by", [None, "reader", "result"])
@pytest.mark.parametrize("moved_by", ["transpose", "convert"])
def test_what_turns_add_up_is_added_over_devices_behind_the_loop(
    begins: str, read_by: str | None, moved_by: str
) -> None:
    """Microbatches' gradients: ``carry + transpose(all_reduce(part))``, unless a turn reads what it has so far. What is
    filled, or only allocated, it need not be added to.

    Narrow ones that are added up wide are wide behind it.
    """
    square, number = Value((4, 4), "f32"), Value((), "f32")
    part = Value((4, 4), "bf16") if moved_by == "convert" else square
    reduced = {"axes": ("x",), "reducer": "add"}
    ops = [
        Op(kind="dot_general", operands=(1, 1), results=(2,)),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes=reduced),
        Op(kind=moved_by, operands=(3,), results=(4,), attributes={"permutation": (1, 0)}),
        Op(kind="add", operands=(0, 4), results=(5,)),
    ]
    if read_by == "reader":
        ops.append(Op(kind="multiply", operands=(3, 3), results=(6,)))
    values = (square, square, part, part, square, square, part)
    body = of_ops(values, tuple(ops), (0, 1), (5, 5) if read_by == "result" else (5, 1)).graph
    loop = Op(kind="while", operands=(2, 1), results=(3, 4), bodies=(body,), trips=8)
    given = {"broadcast_in_dim": (0,), "allocate": (), "copy": (1,)}[begins]
    begin = Op(kind=begins, operands=given, results=(2,))
    found = sum_behind_loops(of_ops((number, *(square,) * 4), (begin, loop), (0, 1), (3,)).graph)
    turns = [times for _, op, times in found.walk() if op.kind == ALL_REDUCE]
    assert turns == [8 if read_by else 1]
    if read_by is None:
        kinds = [op.kind for op in found.ops]
        assert kinds == [begin.kind, "while", ALL_REDUCE, *(["add"] if begins == "copy" else [])]
        assert found.ops[-1].results == found.results
        assert [op.kind for op in found.ops[1].bodies[0].ops] == ["dot_general", moved_by, "add"]
        assert {found.values[v].dtype for op in found.ops if op.kind == ALL_REDUCE for v in op.results} == {"f32"}


@pytest.mark.parametrize("kind", ["dot_general", "scatter"])
def test_what_rows_are_scattered_into_is_added_up_in_every_turn(kind: str) -> None:
    """As an embedding's gradient over microbatches (programs for v5e and v5p, tied to the head or not)."""
    square, number = Value((4, 4), "f32"), Value((), "f32")
    reduced = {"axes": ("x",), "reducer": "add"}
    ops = (
        Op(kind=kind, operands=(1, 1), results=(2,)),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes=reduced),
        Op(kind="add", operands=(0, 3), results=(4,)),
    )
    body = of_ops((square,) * 5, ops, (0, 1), (4, 1)).graph
    loop = Op(kind="while", operands=(2, 1), results=(3, 4), bodies=(body,), trips=8)
    begin = Op(kind="broadcast_in_dim", operands=(0,), results=(2,))
    found = sum_behind_loops(of_ops((number, *(square,) * 4), (begin, loop), (0, 1), (3,)).graph)
    turns = [times for _, op, times in found.walk() if op.kind == ALL_REDUCE]
    assert turns == [8 if kind == "scatter" else 1]


@pytest.mark.parametrize(
    ("batch", "left", "right", "part", "is_scattered"),
    [
        (
            (),
            (8, 512),
            (16, 64),
            (8, 512, 4, 64),
            False,
        ),  # memory's order is 0, 2, 3, 1: parts of dim 2 lie in 8 places
        ((), (1, 512), (16, 64), (1, 512, 4, 64), True),  # but here in one
        ((), (8, 512), (4, 64), (8, 512, 1, 64), True),  # and of one head each: they lie before all others
        ((), (8, 512), (1024,), (2, 512, 1024), True),
        ((64, 16), (64,), (512,), (64, 16, 64, 128), True),
        ((64, 16), (64,), (256,), (64, 16, 64, 64), False),  # half a tile of 128 numbers
        ((64,), (512,), (128,), (64, 512, 32), True),  # dim 1 is the minor one: tiles of 8 by 128 are full so
        ((64,), (512,), (16,), (64, 512, 4), False),
        ((), (32, 101), (768,), (32, 101, 192), True),  # 101 fill the lanes better than 32 do
        ((), (1200,), (250,), (150, 250), True),  # a matrix is padded to whole rows of tiles
        ((), (250,), (4000,), (250, 500), True),  # the rows of tiles are its columns: so less is padded
        ((), (4000,), (50,), (500, 50), False),  # and these are cut along the lanes
    ],
)
def test_a_sum_is_scattered_where_parts_are_whole_tiles_in_a_product_s_memory_order(
    batch: tuple[int, ...], left: tuple[int, ...], right: tuple[int, ...], part: tuple[int, ...], is_scattered: bool
) -> None:
    """Seen so in programs of the TPU compiler."""
    whole = Value((*batch, *left, *right), "f32")
    values = (Value((*batch, *left, 32), "f32"), Value((*batch, 32, *right), "f32"), whole, whole, Value(part, "f32"))
    rank = len(batch)
    dims = {"lhs_batching_dimensions": tuple(range(rank)), "rhs_batching_dimensions": tuple(range(rank))}
    dims |= {"lhs_contracting_dimensions": (rank + len(left),), "rhs_contracting_dimensions": (rank,)}
    ops = (
        Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=dims),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(3,), results=(4,), attributes={"axes": ("x",)}),
    )
    found = scatter(of_ops(values, ops, (0, 1), (4,)).graph, Target(8), {"x": 4, "y": 2})
    assert (REDUCE_SCATTER in [op.kind for op in found.ops]) == is_scattered


@pytest.mark.parametrize(("lanes", "kinds"), [(64, [REDUCE_SCATTER, ALL_REDUCE]), (256, [REDUCE_SCATTER] * 2)])
def test_a_sum_that_is_cut_twice_lies_the_second_time_as_the_first(lanes: int, kinds: list[str]) -> None:
    """Gradients of queries of 12 heads, compiled for v5e: ``bf16[768,12,16]{0,2,1}``, of which 4 are no whole tile."""
    shapes = [(768, 32), (32, 12, lanes), *[(768, 12, lanes)] * 2, *[(768, 12, lanes // 4)] * 2, (768, 12, lanes // 16)]
    dims = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    ops = (
        Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=dims),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(3,), results=(4,), attributes={"axes": ("x",)}),
        Op(kind=ALL_REDUCE, operands=(4,), results=(5,), attributes={"axes": ("y",), "reducer": "add"}),
        Op(kind=SLICE, operands=(5,), results=(6,), attributes={"axes": ("y",)}),
    )
    values = tuple(Value(shape, "bf16") for shape in shapes)
    found = scatter(of_ops(values, ops, (0, 1), (6,)).graph, Target(16), {"x": 4, "y": 4})
    assert [op.kind for op in found.ops if op.kind in (ALL_REDUCE, REDUCE_SCATTER)] == kinds


@pytest.mark.parametrize(("lanes", "dims"), [(64, {0, 1}), (256, {0, 1, 2})])
def test_what_a_ring_may_leave_of_a_sum_is_told_by_how_that_was_cut_before(lanes: int, dims: set[int]) -> None:
    """The same gradients, of which a search promises as much: 4 of 16 numbers of a head are no part to keep, 3 of 12
    heads are, and so are 16 of 64 numbers.
    """
    shapes = [(768, 32), (32, 12, lanes), *[(768, 12, lanes)], *[(768, 12, lanes // 4)] * 2]
    given = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    summed = {"axes": ("x",), "dimensions": (2,), "reducer": "add"}
    ops = (
        Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=given),
        Op(kind=REDUCE_SCATTER, operands=(2,), results=(3,), attributes=summed),
        Op(kind=ALL_REDUCE, operands=(3,), results=(4,), attributes={"axes": ("y",), "reducer": "add"}),
    )
    graph = of_ops(tuple(Value(shape, "bf16") for shape in shapes), ops, (0, 1), (4,)).graph
    assert kept_dims(graph, Target(16), {"x": 4, "y": 4}) == dims


@pytest.mark.parametrize("exchanges_late", [False, True])
@pytest.mark.parametrize(("dtype", "rows", "is_late"), [("bf16", 128, False), ("bf16", 256, True), ("f32", 128, True)])
def test_a_part_is_cut_along_the_lanes_where_operands_are_exchanged_later(
    dtype: str, rows: int, is_late: bool, exchanges_late: bool
) -> None:
    """The gradients of weights that v6e's programs add up transposed: 128 numbers of bf16 fill half a register."""
    square, part = Value((4 * rows, 2048), dtype), Value((rows, 2048), dtype)
    values = (Value((4 * rows, 32), dtype), Value((32, 2048), dtype), square, square, part)
    dims = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,), "exchanged": True}
    ops = (
        Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=dims),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(3,), results=(4,), attributes={"axes": ("x",)}),
    )
    found = scatter(of_ops(values, ops, (0, 1), (4,)).graph, Target(8, exchanges_late=exchanges_late), {"x": 4})
    assert (REDUCE_SCATTER in [op.kind for op in found.ops]) == (is_late or not exchanges_late)


@pytest.mark.parametrize(("axes", "rows", "is_scattered"), [("x:(1)4", 1024, True), ("x:(1)2", 512, False)])
def test_a_sum_over_a_part_of_an_axis_is_scattered_along_that_part(axes: str, rows: int, is_scattered: bool) -> None:
    """A slice names the axis alone. As v3 does with the gradient of a table whose vocabulary is over eight devices."""
    values = (Value((4096, 128), "bf16"), Value((4096, 128), "bf16"), Value((rows, 128), "bf16"))
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": (axes,), "reducer": "add"}),
        Op(kind=SLICE, operands=(1,), results=(2,), attributes={"axes": ("x",)}),
    )
    found = scatter(of_ops(values, ops, (0,), (2,)).graph, Target(8), {"x": 8})
    assert (REDUCE_SCATTER in [op.kind for op in found.ops]) == is_scattered


@pytest.mark.parametrize("part", [(1, 256, 2), (2, 256, 1024)])
def test_a_product_whose_operands_have_no_dims_of_their_own_has_tiles_too(part: tuple[int, ...]) -> None:
    """As ``gsk,gske->gsk`` is, weights of a token's experts."""
    whole = Value((4 * part[0], *part[1:]), "f32")
    values = (*[Value((*whole.shape, 8), "f32")] * 2, whole, whole, Value(part, "f32"))
    batching = {f"{side}_batching_dimensions": (0, 1, 2) for side in ("lhs", "rhs")}
    dims = batching | {f"{side}_contracting_dimensions": (3,) for side in ("lhs", "rhs")}
    ops = (
        Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=dims),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(3,), results=(4,), attributes={"axes": ("x",)}),
    )
    found = scatter(of_ops(values, ops, (0, 1), (4,)).graph, Target(8), {"x": 4, "y": 2})
    assert found.results == (4,)


@pytest.mark.parametrize(
    ("part", "dtype", "is_scattered"),
    [
        ((64, 16, 16, 16), "f32", True),  # images on the lanes, features on the rows
        ((16, 16, 16, 32), "f32", False),  # features on the lanes, but not full ones
        ((32, 16, 16, 16), "bf16", True),
        ((32, 16, 16, 8), "bf16", False),  # half of a tile of 16 rows
        ((8, 128, 128, 32), "bf16", True),  # a row of an image fills the lanes
        ((8, 64, 64, 8), "f32", False),
    ],
)
def test_a_sum_of_images_is_scattered_by_features_where_these_are_whole_rows(
    part: tuple[int, ...], dtype: str, is_scattered: bool
) -> None:
    """Seen so in ResNets, U-Nets and chains of convolutions compiled for v3 to v6e."""
    whole = Value((*part[:3], part[3] * 4), dtype)
    values = (whole, Value((3, 3, whole.shape[3], whole.shape[3]), dtype), whole, whole, Value(part, dtype))
    dims = {"output_batch_dimension": 0, "output_feature_dimension": 3, "output_spatial_dimensions": (1, 2)}
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(2,), attributes=dims),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(3,), results=(4,), attributes={"axes": ("x",)}),
    )
    found = scatter(of_ops(values, ops, (0, 1), (4,)).graph, Target(8), {"x": 4, "y": 2})
    assert (REDUCE_SCATTER in [op.kind for op in found.ops]) == is_scattered


@pytest.mark.parametrize(
    ("kind", "is_scattered"), [(None, True), ("tanh", True), ("convolution", False), ("reduce", False)]
)
def test_a_sum_of_images_lies_along_a_row_s_places_only_where_it_is_a_result(
    kind: str | None, is_scattered: bool
) -> None:
    """As compiled for v3, v5e and v6e alike: what convolutions or sums read of it has features on the lanes."""
    whole, part = Value((8, 128, 128, 128), "f32"), Value((8, 128, 128, 16), "f32")
    kernel, further = Value((3, 3, 128, 128), "f32"), Value((3, 3, 16, 16), "f32")
    dims = {"output_batch_dimension": 0, "output_feature_dimension": 3, "output_spatial_dimensions": (1, 2)}
    ops = [
        Op(kind="convolution", operands=(0, 1), results=(3,), attributes=dims),
        Op(kind=ALL_REDUCE, operands=(3,), results=(4,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(4,), results=(5,), attributes={"axes": ("x",)}),
    ]
    if kind:
        ops.append(Op(kind=kind, operands=(5, 2) if kind == "convolution" else (5,), results=(6,), attributes=dims))
    values = (whole, kernel, further, whole, whole, part, part)
    program = of_ops(values, tuple(ops), (0, 1, 2), (ops[-1].results[0],))
    found = scatter(program.graph, Target(32), {"x": 8, "y": 4})
    assert (REDUCE_SCATTER in [op.kind for op in found.ops]) == is_scattered


@pytest.mark.parametrize(
    ("adds_image", "loops", "is_scattered"), [(True, True, True), (True, False, False), (False, True, False)]
)
def test_a_sum_of_images_that_is_added_to_another_lies_along_a_row_s_places(
    adds_image: bool, loops: bool, is_scattered: bool
) -> None:
    """As compiled for v5e of nets with residuals whose kernels go round in loops, of those whose do not, and of what a
    number is added to before it is convolved again.
    """
    whole, part = Value((8, 128, 128, 128), "f32"), Value((8, 128, 128, 16), "f32")
    kernel, further, number = Value((3, 3, 128, 128), "f32"), Value((3, 3, 16, 16), "f32"), Value((), "f32")
    dims = {"output_batch_dimension": 0, "output_feature_dimension": 3, "output_spatial_dimensions": (1, 2)}
    spread = Op(kind="broadcast_in_dim", operands=(4,), results=(8,), attributes={"broadcast_dimensions": ()})
    ops = (
        Op(kind="convolution", operands=(0, 1), results=(5,), attributes=dims),
        Op(kind=ALL_REDUCE, operands=(5,), results=(6,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(6,), results=(7,), attributes={"axes": ("x",)}),
        *([] if adds_image else [spread]),
        Op(kind="add", operands=(7, 3 if adds_image else 8), results=(9,)),
        Op(kind="convolution", operands=(9, 2), results=(10,), attributes=dims),
    )
    inner = (Op(kind="convolution", operands=(0, 1), results=(2,), attributes=dims),)
    body = Graph(values=(part, further, part), ops=inner, arguments=(0, 1), results=(2,))
    if loops:
        ops = (*ops, Op(kind="while", operands=(3, 2), results=(11,), bodies=(body,), trips=4))
    values = (whole, kernel, further, part, number, whole, whole, part, part, part, part, part)
    found = scatter(of_ops(values, ops, (0, 1, 2, 3, 4), (10,)).graph, Target(32), {"x": 8, "y": 4})
    assert (REDUCE_SCATTER in [op.kind for op in found.ops]) == is_scattered


def test_a_slice_along_a_part_of_the_summed_axis_leaves_the_sum() -> None:
    whole, half = Value((512, 512), "f32"), Value((256, 512), "f32")
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(1,), results=(2,), attributes={"axes": ("x",)}),
    )
    found = scatter(of_ops((whole, whole, half), ops, (0,), (2,)).graph, Target(8), {"x": 4, "y": 2})
    assert found.ops == ops


def test_a_slice_is_cut_out_of_a_sum_before_it_is_joined_with_other_numbers() -> None:
    whole, part = Value((512, 512), "f32"), Value((128, 512), "f32")
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(2,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind="add", operands=(2, 1), results=(3,)),
        Op(kind=SLICE, operands=(3,), results=(4,), attributes={"axes": ("x",)}),
    )
    found = slice_sums(of_ops((whole, whole, whole, whole, part), ops, (0, 1), (4,)).graph)
    assert [op.kind for op in found.ops] == [ALL_REDUCE, SLICE, SLICE, "add"]
    assert [found.shape(op.results[0]) for op in found.ops] == [(512, 512), (128, 512), (128, 512), (128, 512)]
    assert found.results == found.ops[-1].results
    kept = of_ops((whole, whole, whole, whole, part), ops, (0, 1), (3, 4)).graph
    assert slice_sums(kept) == kept  # what is read whole too is joined whole


@pytest.mark.parametrize("between", ["negate", "transpose", "negate exponential", "reshape"])
def test_a_slice_is_cut_out_of_a_sum_above_all_that_works_number_by_number(between: str) -> None:
    """Seen so on v3, v4, v5e and v6e, log-softmax's gradient among others; what has other dims is cut where it is."""
    kinds, whole, part = between.split(), Value((512, 512), "f32"), Value((128, 512), "f32")
    said = {"transpose": {"permutation": (1, 0)}, "reshape": {}}
    ops = [Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("x",), "reducer": "add"})]
    ops += [
        Op(kind=kind, operands=(number,), results=(number + 1,), attributes=said.get(kind, {}))
        for number, kind in enumerate(kinds, 1)
    ]
    cut = {"axes": ("x",), "dimensions": (0,)}
    ops.append(Op(kind=SLICE, operands=(len(ops),), results=(len(ops) + 1,), attributes=cut))
    found = slice_sums(of_ops((*[whole] * len(ops), part), tuple(ops), (0,), (len(ops),)).graph)
    if between == "reshape":
        assert [op.kind for op in found.ops] == [ALL_REDUCE, "reshape", SLICE]
        return
    assert [op.kind for op in found.ops] == [ALL_REDUCE, SLICE, *kinds]
    turned = between == "transpose"
    assert found.shape(found.ops[1].results[0]) == ((512, 128) if turned else (128, 512))
    assert found.ops[1].attributes["dimensions"] == ((1,) if turned else (0,))
    assert found.shape(found.results[0]) == (128, 512)


def test_a_slice_stops_where_what_it_is_of_is_read_by_others_too() -> None:
    """Of a chain whose middle is read twice, and of what a number alone decides; what else is joined is cut there."""
    whole, part, number = Value((512, 512), "f32"), Value((128, 512), "f32"), Value((), "pred")
    sum_ = Op(kind=ALL_REDUCE, operands=(0,), results=(3,), attributes={"axes": ("x",), "reducer": "add"})
    chain = (
        sum_,
        Op(kind="negate", operands=(3,), results=(4,)),
        Op(kind="add", operands=(4, 1), results=(5,)),
        Op(kind=SLICE, operands=(5,), results=(6,), attributes={"axes": ("x",)}),
    )
    values = (whole, whole, number, whole, whole, whole, part)
    found = slice_sums(of_ops(values, chain, (0, 1, 2), (6,)).graph)
    assert [op.kind for op in found.ops] == [ALL_REDUCE, SLICE, "negate", SLICE, "add"]
    kept = of_ops(values, chain, (0, 1, 2), (4, 6)).graph
    assert slice_sums(kept) == kept
    chosen = (*chain[:2], Op(kind="select", operands=(2, 4, 1), results=(5,)), chain[3])
    kept = of_ops(values, chosen, (0, 1, 2), (6,)).graph
    assert slice_sums(kept) == kept


def test_a_slice_of_turned_dims_is_of_the_dim_that_they_were() -> None:
    whole, turned, part = (Value(shape, "f32") for shape in ((64, 128, 256), (256, 64, 128), (256, 16, 128)))
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind="transpose", operands=(1,), results=(2,), attributes={"permutation": (2, 0, 1)}),
        Op(kind=SLICE, operands=(2,), results=(3,), attributes={"axes": ("x",)}),
    )
    found = slice_sums(of_ops((whole, whole, turned, part), ops, (0,), (3,)).graph)
    assert [op.kind for op in found.ops] == [ALL_REDUCE, SLICE, "transpose"]
    assert found.shape(found.ops[1].results[0]) == (16, 128, 256)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_of_a_sum_without_elements_nothing_is_kept(dtype: str) -> None:
    whole = Value((64, 0), dtype)
    op = Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("y",), "reducer": "add"})
    assert kept_dims(of_ops((whole, whole), (op,), (0,), (1,)).graph, Target(8), {"y": 8}) == frozenset()


def test_exchanges_of_a_shared_gather_are_shared() -> None:
    part, whole, other = Value((128, 512), "f32"), Value((512, 512), "f32"), Value((1024, 256), "f32")
    gathered, sent = {"axes": ("x",), "dimensions": (0,)}, {"axes": ("y",), "dimensions": (0, 1)}
    ops = [Op(kind=ALL_GATHER, operands=(0,), results=(n,), attributes=gathered) for n in (1, 2)]
    ops += [Op(kind=ALL_TO_ALL, operands=(n,), results=(n + 2,), attributes=sent) for n in (1, 2)]
    ops.append(Op(kind="add", operands=(3, 4), results=(5,)))
    found = share_gathers(of_ops((part, whole, whole, other, other, other), tuple(ops), (0,), (5,)).graph)
    assert [(op.kind, op.operands) for op in found.ops] == [(ALL_GATHER, (0,)), (ALL_TO_ALL, (1,)), ("add", (3, 3))]


def test_what_lies_transposed_is_gathered_as_what_it_is_the_transpose_of() -> None:
    """As a table read by rows and, tied, by a product (seen compiled); XLA converts before it transposes."""
    part, turned, whole, back = ((128, 64), (64, 128), (512, 64), (64, 512))
    by_rows, by_columns = ({"axes": ("x",), "dimensions": (dim,)} for dim in (0, 1))
    ops = (
        Op(kind="convert", operands=(0,), results=(1,)),
        Op(kind=ALL_GATHER, operands=(1,), results=(2,), attributes=by_rows),
        Op(kind="transpose", operands=(0,), results=(3,), attributes={"permutation": (1, 0)}),
        Op(kind="convert", operands=(3,), results=(4,)),
        Op(kind=ALL_GATHER, operands=(4,), results=(5,), attributes=by_columns),
    )
    dtypes = ("f32", "bf16", "bf16", "f32", "bf16", "bf16")
    shapes = (part, part, whole, turned, turned, back)
    values = tuple(map(Value, shapes, dtypes))
    found = share_gathers(of_ops(values, ops, (0,), (2, 5)).graph)
    assert [op.kind for op in found.ops] == ["convert", ALL_GATHER, "transpose", "convert", "transpose"]
    assert (found.ops[-1].operands, found.ops[-1].attributes["permutation"]) == ((2,), (1, 0))
    by_other = replace(ops[-1], attributes={"axes": ("x",), "dimensions": (0,)})
    other = (*values[:5], Value((256, 128), "bf16"))
    kept = share_gathers(of_ops(other, (*ops[:4], by_other), (0,), (2, 5)).graph)
    assert sum(op.kind == ALL_GATHER for op in kept.ops) == 2  # gathered along another dim


@pytest.mark.parametrize(("between", "gathers"), [("tanh", 1), ("long scan", 2), ("several results", 2)])
def test_long_scans_and_what_gives_several_results_keep_readers_of_a_gather_apart(between: str, gathers: int) -> None:
    """98 operations stand between the two; XLA writes a long scan as several, and takes results out of tuples."""
    gathered, window = {"axes": ("x",), "dimensions": (0,)}, {"window_dimensions": (512, 1)}
    ops = [Op(kind=ALL_GATHER, operands=(0,), results=(1,), attributes=gathered)]
    for n in range(2, 100):
        is_scan = between == "long scan" and n == 50
        results = (n, n + 100) if between == "several results" and n in (20, 40, 60, 80) else (n,)
        kind = "reduce_window" if is_scan else "tanh"
        ops.append(Op(kind=kind, operands=(n - 1,), results=results, attributes=window if is_scan else {}))
    ops.append(Op(kind=ALL_GATHER, operands=(0,), results=(100,), attributes=gathered))
    ops.append(Op(kind="add", operands=(99, 100), results=(101,)))
    values = (Value((256, 4), "f32"), *[Value((512, 4), "f32")] * 200)
    found = share_gathers(of_ops(values, tuple(ops), (0,), (101,)).graph)
    assert sum(op.kind == ALL_GATHER for op in found.ops) == gathers


@pytest.mark.parametrize(("rows", "gathers"), [(1, 2), (2, 1)])
def test_what_products_are_spared_of_dims_of_size_one_keeps_readers_of_a_gather_apart(rows: int, gathers: int) -> None:
    """A product of one row between elementwise operations has a reshape on either side (seen compiled)."""
    image, part, whole = Value((rows, 16, 64), "f32"), Value((8, 64), "f32"), Value((64, 64), "f32")
    contracted = {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (0,)}
    gathered = {"axes": ("x",), "dimensions": (0,)}
    values, ops, now = [image, part, whole], list[Op](), 0

    def then(kind: str, operands: tuple[int, ...], result: Value, attributes: dict[str, object]) -> int:
        values.append(result)
        ops.append(Op(kind=kind, operands=operands, results=(len(values) - 1,), attributes=attributes))
        return len(values) - 1

    now = then("dot_general", (now, then(ALL_GATHER, (1,), whole, gathered)), image, contracted)
    for _ in range(30):
        now = then("tanh", (then("tanh", (now,), image, {}),), image, {})
        now = then("dot_general", (now, 2), image, contracted)
    now = then("dot_general", (now, then(ALL_GATHER, (1,), whole, gathered)), image, contracted)
    found = share_gathers(of_ops(tuple(values), tuple(ops), (0, 1, 2), (now,)).graph)
    assert sum(op.kind == ALL_GATHER for op in found.ops) == gathers


@pytest.mark.parametrize(("results", "gathers"), [((110, 111), 2), ((111, 110), 1)])
def test_a_gather_that_is_met_first_from_the_results_is_the_first(results: tuple[int, int], gathers: int) -> None:
    """Whoever reads it last: one whose reader is near the results may be read long before (seen compiled)."""
    part, whole = Value((2,), "f32"), Value((8,), "f32")
    gathers_of = {"kind": ALL_GATHER, "operands": (0,), "attributes": {"axes": ("x",), "dimensions": (0,)}}
    ops = [Op(results=(1,), **gathers_of)]
    ops += [Op(kind="tanh", operands=(v - 1,), results=(v,)) for v in range(2, 111)]
    ops += [Op(results=(112,), **gathers_of), Op(kind="tanh", operands=(112,), results=(111,))]
    values = (part, *[whole] * 112)
    found = share_gathers(of_ops(values, tuple(ops), (0,), results).graph)
    assert sum(op.kind == ALL_GATHER for op in found.ops) == gathers


@pytest.mark.parametrize(("columns", "dtype"), [(1, "f32"), (8, "bf16")])
def test_what_a_vector_is_multiplied_by_is_gathered_as_it_is(columns: int, dtype: str) -> None:
    values = (
        Value((128, 64), "f32"),
        Value((512, 64), "f32"),
        Value((64, columns), "f32"),
        Value((512, columns), "f32"),
    )
    dims = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    ops = (
        Op(kind=ALL_GATHER, operands=(0,), results=(1,), attributes={"axes": ("x",), "dimensions": (0,)}),
        Op(kind="dot_general", operands=(1, 2), results=(3,), attributes=dims),
    )
    found = narrow(of_ops(values, ops, (0, 2), (3,)).graph)
    assert [found.values[op.results[0]].dtype for op in found.ops if op.kind == ALL_GATHER] == [dtype]


@pytest.mark.parametrize(("also_read", "dtype"), [(False, "bf16"), (True, "f32")])
@pytest.mark.parametrize("is_converted", [False, True])
def test_a_sum_that_is_only_rounded_leaves_that(is_converted: bool, also_read: bool, dtype: str) -> None:
    """By a product or by the step, as compiled for v3, v4, v5e and v6e: what is sent counts as what it leaves."""
    square = Value((64, 64), "f32")
    dims = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    ops = [
        Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=dims),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind="convert", operands=(3,), results=(4,))
        if is_converted
        else Op(kind="dot_general", operands=(3, 1), results=(4,), attributes=dims),
        *([Op(kind="tanh", operands=(3,), results=(5,))] if also_read else []),
    ]
    values = (*(square,) * 4, Value((64, 64), "bf16") if is_converted else square, square)
    found = narrow(of_ops(values, tuple(ops), (0, 1), (4, 5) if also_read else (4,)).graph)
    (reduce,) = (op for op in found.ops if op.kind == ALL_REDUCE)
    assert [found.values[value].dtype for value in (*reduce.operands, *reduce.results)] == ["f32", dtype]
    assert held_bytes(found, reduce) == 64 * 64 * (2 if dtype == "bf16" else 4)


@pytest.mark.parametrize(
    ("part", "dim", "tiled", "parts", "tiles"),
    [
        ((2048, 8192), 0, (0, 1), 4, 192),  # to 2072 rows, each eight of which are 64 tiles
        ((8192, 2048), 1, (0, 1), 4, 0),
        ((64, 64, 1024), 1, (1, 2), 8, 0),
        ((1, 32, 64, 1024), 0, (2, 3), 8, 10),  # to 2058 tiles
        ((32, 128, 4000), 1, (0, 2), 8, 6),  # to 16006 tiles
    ],
)
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_parts_that_lie_between_each_other_are_not_padded(
    part: tuple[int, ...], dim: int, tiled: tuple[int, ...], parts: int, tiles: int, dtype: str
) -> None:
    """As compiled: rows are padded to pieces of equal size, columns never; sums of bfloat16 as those of float32."""
    assert padding_tiles(Value(part, dtype), dim, tiled, parts, RING_BYTES) == tiles


@pytest.mark.parametrize(
    ("rows", "columns", "kind"),
    [
        (8, 32, ALL_REDUCE),
        (8, 96, ALL_REDUCE),
        (8, 128, ALL_REDUCE),
        (4, 256, ALL_REDUCE),
        (4, 512, ALL_REDUCE),
        (8, 256, REDUCE_SCATTER),
        (16, 32, REDUCE_SCATTER),
        (16, 24, REDUCE_SCATTER),
        (32, 16, ALL_REDUCE),  # the rows fill lanes better
    ],
)
def test_rows_are_scattered_where_a_part_is_more_than_a_tile(rows: int, columns: int, kind: str) -> None:
    """As compiled for a product on v3:4x4 of which each of eight devices keeps so many rows."""
    whole, part = Value((rows * 8, columns), "f32"), Value((rows, columns), "f32")
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("y",), "reducer": "add"}),
        Op(kind=SLICE, operands=(1,), results=(2,), attributes={"axes": ("y",)}),
    )
    found = scatter(of_ops((whole, whole, part), ops, (0,), (2,)).graph, Target(8), {"y": 8})
    assert found.ops[0].kind == kind


@pytest.mark.parametrize(
    ("rows", "columns", "chip", "kind"),
    [
        (8, 128, "v3", ALL_REDUCE),
        (8, 256, "v3", REDUCE_SCATTER),
        (16, 64, "v3", REDUCE_SCATTER),
        (4, 512, "v3", ALL_REDUCE),
        (8, 512, "v5e", ALL_REDUCE),
        (12, 256, "v4", ALL_REDUCE),
        (16, 64, "v5e", REDUCE_SCATTER),
        (32, 32, "v4", REDUCE_SCATTER),
    ],
)
def test_what_labels_look_up_is_scattered_as_a_matrix_of_many_rows(
    rows: int, columns: int, chip: str, kind: str
) -> None:
    """As compiled for v3:4x4, v4:2x2x4 and v5e:4x4 of what labels look up in scores that four devices have parts of."""
    whole, part = Value((rows * 4, columns, 1), "f32"), Value((rows, columns, 1), "f32")
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("y",), "reducer": "add"}),
        Op(kind=SLICE, operands=(1,), results=(2,), attributes={"axes": ("y",)}),
    )
    goal = Target(16, fewest_rows=FEWEST_ROWS.get(chip, 0))
    found = scatter(of_ops((whole, whole, part), ops, (0,), (2,)).graph, goal, {"y": 4})
    assert found.ops[0].kind == kind


@pytest.mark.parametrize(("part", "kind"), [((1, 32, 16), REDUCE_SCATTER), ((1, 8, 8), ALL_REDUCE)])
def test_a_part_of_one_matrix_is_counted_with_its_empty_lanes(part: tuple[int, ...], kind: str) -> None:
    """The first as compiled on v3:4x4, a small kernel's gradient tap by tap; the other is less than a tile."""
    whole = Value((*part[:-1], part[-1] * 8), "f32")
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("y",), "reducer": "add"}),
        Op(kind=SLICE, operands=(1,), results=(2,), attributes={"axes": ("y",)}),
    )
    found = scatter(of_ops((whole, whole, Value(part, "f32")), ops, (0,), (2,)).graph, Target(8), {"y": 8})
    assert found.ops[0].kind == kind


@pytest.mark.parametrize(("features", "kind"), [(64, ALL_REDUCE), (128, REDUCE_SCATTER)])
def test_a_sum_of_a_products_parts_lies_as_the_product_does(features: int, kind: str) -> None:
    """As compiled on v5p:2x2x4: of 64 features the rows fill lanes, of which a second sum would cut a register."""
    rows = (4096, 2048, 2048, 512, 512, 128)
    values = [Value((4096, 2048), "bf16"), *(Value((n, 16, features), "bf16") for n in rows)]
    product = {"lhs_contracting_dimensions": (0,), "rhs_contracting_dimensions": (0,)}
    ops = [Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=product)]
    for axis, start in (("x", 2), ("y", 4)):
        reduced = {"axes": (axis,), "reducer": "add"}
        ops += [
            Op(kind=ALL_REDUCE, operands=(start,), results=(start + 1,), attributes=reduced),
            Op(kind=SLICE, operands=(start + 1,), results=(start + 2,), attributes={"axes": (axis,)}),
        ]
    found = scatter(of_ops(tuple(values), tuple(ops), (0, 1), (6,)).graph, Target(16), {"x": 4, "y": 4})
    assert [op.kind for op in found.ops[:3]] == ["dot_general", REDUCE_SCATTER, kind]


@pytest.mark.parametrize(("between", "kind"), [(False, ALL_REDUCE), (True, REDUCE_SCATTER)])
def test_a_sum_whose_part_is_cut_again_is_no_reduce_scatter(between: bool, kind: str) -> None:
    """As compiled for convolutions' gradients on v3:4x4: both slices become one, of more devices than added it up."""
    rows = (1024, 1024, 256, 256, 64)
    values = tuple(Value((n, 512), "f32") for n in rows)
    ops = [
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(1,), results=(2,), attributes={"axes": ("x",)}),
        *([Op(kind="negate", operands=(2,), results=(3,))] if between else []),
        Op(kind=SLICE, operands=(3 if between else 2,), results=(4,), attributes={"axes": ("y",)}),
    ]
    found = scatter(of_ops(values, tuple(ops), (0,), (4,)).graph, Target(16), {"x": 4, "y": 4})
    assert found.ops[0].kind == kind


@pytest.mark.parametrize(("columns", "kind"), [(256, ALL_REDUCE), (512, REDUCE_SCATTER)])
def test_halves_of_a_transposed_part_are_cut_out_of_the_sum(columns: int, kind: str) -> None:
    """As compiled for v5p and v6e of positions that turn halves of keys; what is as long as the part cuts nothing."""
    whole, part, turned = (Value(shape, "f32") for shape in ((1024, 512), (256, 512), (512, 256)))
    half = Value((columns, 256), "f32")
    cuts = [
        {"start_indices": (first, 0), "limit_indices": (first + columns, 256), "strides": (1, 1)}
        for first in (0, 512 - columns)
    ]
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(1,), results=(2,), attributes={"axes": ("x",)}),
        Op(kind="transpose", operands=(2,), results=(3,), attributes={"permutation": (1, 0)}),
        *(Op(kind="slice", operands=(3,), results=(4 + n,), attributes=cut) for n, cut in enumerate(cuts)),
    )
    found = scatter(of_ops((whole, whole, part, turned, half, half), ops, (0,), (4, 5)).graph, Target(4), {"x": 4})
    assert found.ops[0].kind == kind


def test_half_of_all_rows_of_a_part_is_cut_out_of_the_sum_too() -> None:
    """What takes all rows of a part is cut as far as what reads it is."""
    whole, part, half = (Value((rows, 512), "f32") for rows in (1024, 256, 128))
    rows = ({"start_indices": (0, 0), "limit_indices": (count, 512), "strides": (1, 1)} for count in (256, 128))
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(1,), results=(2,), attributes={"axes": ("x",)}),
        *(Op(kind="slice", operands=(n,), results=(n + 1,), attributes=cut) for n, cut in enumerate(rows, 2)),
    )
    graph = of_ops((whole, whole, part, part, half), ops, (0,), (4,)).graph
    assert scatter(graph, Target(4), {"x": 4}).ops[0].kind == ALL_REDUCE


@pytest.mark.parametrize(("is_tpu", "held"), [(True, 2 << 20), (False, 4 << 20)])
def test_a_sum_that_leaves_narrower_numbers_is_sent_them_on_tpus(is_tpu: bool, held: int) -> None:
    """As v6e's programs do of tables split by rows; CPUs are sent float32, and round what they have added up."""
    values = (Value((1024, 1024), "f32"), Value((1024, 1024), "bf16"))
    ops = (Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("x",), "reducer": "add"}),)
    graph = of_ops(values, ops, (0,), (1,)).graph
    assert held_bytes(graph, graph.ops[0], is_tpu=is_tpu) == held


def test_what_pads_the_pieces_of_a_ring_is_sent_with_them() -> None:
    """As compiled for v5e:4x8 of the gradient of an embedding: 72 MiB pass the ring, of 64."""
    whole, part = Value((8192, 2048), "f32"), Value((256, 2048), "f32")
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind=SLICE, operands=(1,), results=(2,), attributes={"axes": ("x",)}),
    )
    found = scatter(of_ops((whole, whole, part), ops, (0,), (2,)).graph, Target(32), {"x": 32})
    sent = {op.kind: held_bytes(found, op) for op in found.of_kind(REDUCE_SCATTER, COLLECTIVE_PERMUTE)}
    assert sent == {REDUCE_SCATTER: 72 * 2**20, COLLECTIVE_PERMUTE: 31 * 2**18}
