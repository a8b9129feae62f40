"""What of loops is brought to vector memory once for all of their turns."""

from __future__ import annotations

from typing import Any

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.compute.copies.strided import rows_cycles, strided
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value

CHIP = catalogue()["v5e"]


def multiplied(rows: int, *, kind: str, trips: int) -> Graph:
    """A state multiplied by the same weights in each turn, or branch."""
    state, weights = Value((16, rows), "f32"), Value((rows, rows), "bf16")
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    multiply = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    body = Graph(values=(state, weights, state), ops=(multiply,), arguments=(0, 1), results=(2, 1))
    loop = Op(kind=kind, operands=(0, 1), results=(2, 3), bodies=(body,), trips=trips)
    return Graph(values=(state, weights) * 2, ops=(loop,), arguments=(0, 1), results=(2, 3))


@pytest.mark.parametrize(("rows", "stays"), [(1024, True), (65536, False)])
def test_what_every_turn_multiplies_by_stays_in_vector_memory(rows: int, stays: bool) -> None:
    """Weights that all turns of a loop read, where vector memory holds them (v5e's compiler: GRUs over time)."""
    (branch,) = price(fuse(multiplied(rows, kind="case", trips=1)), CHIP)
    (turn,) = price(fuse(multiplied(rows, kind="while", trips=100)), CHIP)
    assert turn.times == 100
    assert (turn.num_bytes == 0) == stays
    assert (turn.seconds < 0.9 * branch.seconds) == stays


def test_branches_and_single_turns_are_no_loops() -> None:
    """What turns read alike is brought once, which the turns share: nothing is gained by few of them."""
    (branch,) = price(fuse(multiplied(2048, kind="case", trips=1)), CHIP)
    (once,) = price(fuse(multiplied(2048, kind="while", trips=1)), CHIP)
    (twice,) = price(fuse(multiplied(2048, kind="while", trips=2)), CHIP)
    (often,) = price(fuse(multiplied(2048, kind="while", trips=1000)), CHIP)
    weights_s = 2 * 2048**2 / CHIP.hbm_bytes_per_s
    assert once.seconds == branch.seconds
    assert 2 * twice.seconds > 2 * often.seconds + 0.9 * weights_s


@pytest.mark.parametrize(("rows", "stays"), [(1024, True), (8192, False)])
def test_what_every_turn_multiplies_by_stays_in_a_memory_that_cores_share(rows: int, stays: bool) -> None:
    """v4's, which holds 64 MiB of them (LSTMs over time) and costs products nothing to read."""
    (turn,) = price(fuse(multiplied(rows, kind="while", trips=100)), catalogue()["v4"])
    assert (turn.num_bytes < 2 * rows**2) == stays


def test_what_a_turn_slices_of_a_stack_is_not_fetched_before() -> None:
    """Each turn's weights, read in place: the compiler fetches no part of a stack ahead (recurrent nets on v5p)."""
    values = (*(Value(shape, "bf16") for shape in ((128, 256), (8, 256, 2048), (), (1, 256, 2048), (256, 2048))),)
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    slices = Op(kind="dynamic_slice", operands=(1, 2, 2, 2), results=(3,))
    turns = Op(kind="reshape", operands=(3,), results=(4,))
    multiply = Op(kind="dot_general", operands=(0, 4), results=(5,), attributes=said)
    made = (*values, Value((128, 2048), "bf16"))
    graph = Graph(values=made, ops=(slices, turns, multiply), arguments=(0, 1, 2), results=(5,))
    (sliced,) = price(fuse(graph), catalogue()["v5p"])
    assert sliced.num_bytes >= 2 * 256 * 2048


@pytest.mark.parametrize(("name", "is_near"), [("v5p", False), ("v6e", True)])
def test_what_products_make_is_left_in_vector_memory_by_some_chips(name: str, is_near: bool) -> None:
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    first = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    second = Op(kind="dot_general", operands=(2, 1), results=(3,), attributes=said)
    graph = Graph(values=(Value((256, 256), "f32"),) * 4, ops=(first, second), arguments=(0, 1), results=(3,))
    made, _ = price(fuse(graph), catalogue()[name])
    assert (made.num_bytes <= 4 * 256**2) == is_near


def test_what_a_loop_of_permutes_cuts_its_parts_of_is_at_hand_as_a_whole() -> None:
    """Gradients of weights that go round a ring (a decoder under FSDP on v5e: 2450 cycles each, 4346 from afar)."""
    left, right, made = (Value(shape, "bf16") for shape in ((16, 64), (64, 4096), (16, 128)))
    multiply = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    values = (left, right, Value((64, 128), "bf16"), made)

    def turn(step: dict[str, int]) -> Graph:
        cut = Op(kind="dynamic_slice", operands=(1,), results=(2,), attributes={"slice_sizes": (64, 128), **step})
        product = Op(kind="dot_general", operands=(0, 2), results=(3,), attributes=multiply)
        return Graph(values=values, ops=(cut, product), arguments=(0, 1), results=(3,))

    (part,), (piece,) = (price(fuse(turn(step)), CHIP) for step in ({"step": 0}, {}))
    assert part.num_bytes < piece.num_bytes
    assert part.cycles < piece.cycles


@pytest.mark.parametrize(
    ("shape", "order", "takes_rows"), [((8, 64, 512), (1, 0, 2), True), ((8, 16, 2, 128, 128), (1, 0, 2, 3, 4), False)]
)
def test_pieces_of_a_transposed_stack_are_rows_where_it_is_cut_inside_of_registers(
    shape: tuple[int, ...], order: tuple[int, ...], takes_rows: bool
) -> None:
    """A sequence over time is, chunks of a sequence for linear attention are not (5.0 us a turn on v5e, not 25)."""
    stack = Value(tuple(shape[dim] for dim in order), "bf16")
    transpose = Op(kind="transpose", operands=(0,), results=(1,), attributes={"permutation": order})
    graph = Graph(values=(Value(shape, "bf16"), stack), ops=(transpose,), arguments=(0,), results=(1,))
    assert (1 in strided(graph, (0,))) == takes_rows


@pytest.mark.parametrize(
    ("rows", "times", "takes_rows"),
    [
        (64, 32, True), (128, 128, True), (200, 100, True), (128, 16, False), (128, 1000, False), (256, 200, False),
        (100, 6, False), (20, 6, False), (12, 4, False), (2, 4, True),
    ],
)  # fmt: skip
def test_a_product_lies_by_turns_where_its_rows_fill_registers_better(rows: int, times: int, takes_rows: bool) -> None:
    """[rows, times, features] by a matrix, before a scan over times: compiled for v5e, and for others alike."""
    said = {"lhs_contracting_dimensions": (2,), "rhs_contracting_dimensions": (0,)}
    assert (
        3 in strided(_turned_product((rows, times, 512), (0, 1), said, (1, 0, 2), rows, times), (0, 1))
    ) == takes_rows


@pytest.mark.parametrize(
    ("rows", "times", "features", "takes_rows"),
    [
        (64, 32, 512, False), (96, 32, 512, False), (128, 16, 512, False), (64, 32, 64, False), (64, 64, 512, True),
        (16, 64, 512, True), (8, 128, 512, True), (200, 256, 512, True),
    ],
)  # fmt: skip
def test_a_matrix_by_rows_lies_by_turns_where_these_are_fewer(
    rows: int, times: int, features: int, takes_rows: bool
) -> None:
    """As "btf,fg->tbg" is multiplied: the matrix comes first (compiled for v5e, and for others alike)."""
    said = {"lhs_contracting_dimensions": (0,), "rhs_contracting_dimensions": (2,)}
    made = (features, rows, times)
    assert (3 in strided(_turned_product(made, (1, 0), said, (2, 1, 0), rows, times), ())) == takes_rows


def _turned_product(
    made: tuple[int, ...],
    operands: tuple[int, ...],
    said: dict[str, Any],
    order: tuple[int, ...],
    rows: int,
    times: int,
) -> Graph:
    """A product that is transposed for a scan: rows of so many times by a matrix."""
    shapes = (rows, times, 256), (256, max(made)), made, tuple(made[dim] for dim in order)
    product = Op(kind="dot_general", operands=operands, results=(2,), attributes=said)
    turn = Op(kind="transpose", operands=(2,), results=(3,), attributes={"permutation": order})
    values = tuple(Value(each, "bf16") for each in shapes)
    return Graph(values=values, ops=(product, turn), arguments=(0, 1), results=(3,))


@pytest.mark.parametrize(
    ("name", "rows", "dtype", "compiled"),
    [
        ("v3", 16, "f32", 1664), ("v3", 64, "bf16", 4879), ("v4", 16, "f32", 1922), ("v4", 64, "bf16", 5008),
        ("v5e", 16, "f32", 2910), ("v5e", 64, "bf16", 5205), ("v5p", 16, "f32", 2520), ("v5p", 64, "bf16", 3378),
        ("v6e", 16, "f32", 2468), ("v6e", 64, "bf16", 3465),
    ],
)  # fmt: skip
def test_rows_are_taken_out_of_registers_by_a_kernel_of_its_own(
    name: str, rows: int, dtype: str, compiled: int
) -> None:
    """What a turn cuts out of [64, rows, 512] that lies by rows, whatever computes with it then."""
    stack, piece, made = (Value(shape, dtype) for shape in ((64, rows, 512), (1, rows, 512), (rows, 512)))
    cut = Op(kind="dynamic_slice", operands=(0, 1, 1, 1), results=(2,))
    ops = (cut, Op(kind="reshape", operands=(2,), results=(3,)), Op(kind="tanh", operands=(3,), results=(4,)))
    graph = Graph(values=(stack, Value((), "s32"), piece, made, made), ops=ops, arguments=(0, 1), results=(4,))
    (kernel,) = fuse(graph).kernels
    speed = speed_of(catalogue()[name])
    took = rows_cycles(graph, kernel, frozenset({0}), speed.edge, speed.coefficients)
    assert took == pytest.approx(compiled, rel=0.15)


def test_numbers_for_all_of_an_array_have_no_order() -> None:
    """A given predicate, one for all, selects an array that is reshaped before its pieces are cut out."""
    shapes = [((), "pred"), ((8, 64), "f32"), ((8, 64), "f32"), ((8, 64), "f32"), ((8, 4, 16), "f32")]
    chosen = Op(kind="select", operands=(0, 1, 2), results=(3,))
    cut = Op(kind="reshape", operands=(3,), results=(4,))
    values = tuple(Value(*each) for each in shapes)
    assert not strided(Graph(values=values, ops=(chosen, cut), arguments=(0, 1, 2), results=(4,)), (0, 1, 2))
