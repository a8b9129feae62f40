"""What TPU7x's SparseCores do beside its work, and in which order its kernels then stand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from meshwright.planner.memory.order.apart import apart_s, done_apart
from meshwright.planner.memory.order.offloaded import sums_under_way
from meshwright.planner.memory.order.schedule import put_in_order
from programs import of_ops

SIZE = Value((1024, 1024), "f32")
SENT = {"axes": ("x", "y")}
SUMMED = {"axes": ("x",), "reducer": "add"}
MESH = {"x": 4, "y": 4}


def product(operands: tuple[int, int], result: int) -> Op:
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    return Op(kind="dot_general", operands=operands, results=(result,), attributes=said)


def order(ops: tuple[Op, ...], results: tuple[int, ...], *, in_loop: bool = False) -> list[int]:
    """The kernels, of one operation each, by what they write; value 0 is given."""
    values = (SIZE,) * (1 + len(ops))
    made = of_ops(values, ops, (0,), results)
    if in_loop:
        loop = Op(kind="while", operands=(0,), results=(1, 2), bodies=(made.graph,), trips=2)
        around = of_ops((SIZE,) * 3, (loop,), (0,), (1, 2))
        made = replace(around, kernels=(replace(around.kernels[0], bodies=(made,)),))
    found = put_in_order(replace(made, graph=replace(made.graph, mesh=MESH)), catalogue()["tpu7x"])
    (inside,) = found.bodies[0] if in_loop else (found,)
    return [kernel.writes[0] for kernel in inside.program.kernels]


@pytest.mark.parametrize("in_loop", [False, True])
@pytest.mark.parametrize("results", [(2, 4), (4, 2)])
def test_products_that_only_the_end_needs_stand_beside_a_sum(results: tuple[int, int], in_loop: bool) -> None:
    """A gradient (2) of what is summed (3) before another kernel (4) reads it."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        product((1, 1), 2),
        Op(kind=ALL_REDUCE, operands=(1,), results=(3,), attributes=SUMMED),
        Op(kind="reverse", operands=(3,), results=(4,)),
    )
    assert order(ops, results, in_loop=in_loop) == [1, 3, 2, 4]


def test_any_number_of_gathers_are_under_way() -> None:
    """Six of a layer's weights are in tpu7x's programs, before the first product that reads one."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="reverse", operands=(1,), results=(2,)),
        Op(kind=ALL_GATHER, operands=(0,), results=(3,), attributes=SENT),
        product((2, 3), 4),
        Op(kind=ALL_GATHER, operands=(0,), results=(5,), attributes=SENT),
        product((4, 5), 6),
    )
    assert order(ops, (6,))[:2] == [3, 5]


def alone(op: Op, *values: Value) -> tuple[Graph, Kernel]:
    program = of_ops(values, (op,), op.operands, op.results)
    return program.graph, program.kernels[0]


@pytest.mark.parametrize(
    ("kind", "axes", "whole", "cycles"),
    [
        (ALL_REDUCE, ("y",), SIZE, 85369),
        (ALL_GATHER, ("x", "y"), Value((8192, 2048), "f32"), 1280530),
        (ALL_GATHER, ("x", "y"), Value((32, 64, 2048), "bf16"), 160067),
        (REDUCE_SCATTER, ("x", "y"), Value((8192, 2048), "f32"), 1365900),
    ],
)
def test_collectives_take_as_long_as_a_link_sends_their_bytes(
    kind: str, axes: tuple[str, ...], whole: Value, cycles: int
) -> None:
    """In cycles of the log of libtpu's scheduler for tpu7x:2x2x2, of 49.13 bytes of a link each."""
    part = replace(whole, shape=(whole.shape[0] // 16, *whole.shape[1:]))
    given, made = (part, whole) if kind == ALL_GATHER else (whole, part if kind == REDUCE_SCATTER else whole)
    graph, kernel = alone(Op(kind=kind, operands=(0,), results=(1,), attributes={"axes": axes}), given, made)
    assert done_apart(graph, kernel) == kind
    assert apart_s(graph, kernel, MESH, 49.13, 1.0) == pytest.approx(cycles, rel=2e-3)


@pytest.mark.parametrize(
    ("row", "is_apart"),
    [
        ((512,), True),
        ((768,), True),
        ((1024,), False),
        ((2048,), False),
        ((), True),
        ((2, 512), False),
        ((8, 64), False),
    ],
)
def test_narrow_rows_are_added_up_by_sparse_cores(row: tuple[int, ...], is_apart: bool) -> None:
    """2048 rows of 512 numbers take 393216 cycles in the log; of 1024 they are no part of it, whatever the table.
    Single numbers are added to by them too, rows of two dims are not (programs for tpu7x:2x2x1).
    """
    table, rows, places = Value((8192, *row), "f32"), Value((2048, *row), "f32"), Value((2048, 1), "s32")
    graph, kernel = alone(Op(kind="scatter", operands=(0, 1, 2), results=(3,)), table, places, rows, table)
    assert (done_apart(graph, kernel) == "scatter") == is_apart
    if row == (512,):
        assert apart_s(graph, kernel, MESH, 49.13, 1.0) == pytest.approx(393216, rel=2e-3)


def test_what_is_looked_up_beside_keeps_its_table() -> None:
    """2048 rows of 2048 numbers take 49141 cycles in the log; the table lies there until they are read."""
    table, places, rows = Value((8192, 2048), "f32"), Value((2048, 1), "s32"), Value((2048, 2048), "f32")
    said = {"slice_sizes": (1, 2048), "collapsed_slice_dims": (0,)}
    ops = (
        Op(kind="sort", operands=(0,), results=(2,)),
        Op(kind="gather", operands=(2, 1), results=(3,), attributes=said),
        Op(kind="sort", operands=(0,), results=(4,)),
        Op(kind="reverse", operands=(3,), results=(5,)),
    )
    program = of_ops((table, places, table, rows, table, rows), ops, (0, 1), (4, 5))
    assert apart_s(program.graph, program.kernels[1], MESH, 49.13, 1.0) == pytest.approx(49141, rel=2e-3)
    step = put_in_order(program)
    kinds = [step.program.graph.ops[kernel.ops[-1]].kind for kernel in step.program.kernels]
    (found,) = sums_under_way(step.program, step.flow, MESH, 2)
    made = step.flow.writes[kinds.index("sort") if kinds.index("sort") < kinds.index("gather") else 0]
    assert (found.num_bytes, found.writes) == (0, ())
    assert set(made) & set(found.reads)
    assert found.span == (kinds.index("gather"), kinds.index("reverse") - 1)


def test_what_comes_in_lies_there_until_the_last_sum_under_way_ends() -> None:
    """Two of 4 MiB over 4 devices, begun one after the other: a place of three quarters of one for both."""
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes=SUMMED),
        Op(kind=ALL_REDUCE, operands=(0,), results=(2,), attributes=SUMMED),
        Op(kind="sort", operands=(0,), results=(3,)),
    )
    step = put_in_order(of_ops((SIZE,) * 4, ops, (0,), (1, 2, 3)))
    found = sums_under_way(step.program, step.flow, MESH, 2)
    assert sorted(each.num_bytes for each in found) == [0, 3 << 20]
    assert next(each.incoming for each in found if each.num_bytes) == (0, 2)


def test_what_comes_in_of_sums_one_after_the_other_is_never_there_at_a_time() -> None:
    ops = (
        Op(kind=ALL_REDUCE, operands=(0,), results=(1,), attributes=SUMMED),
        Op(kind="sort", operands=(0,), results=(2,)),
        Op(kind="sort", operands=(2,), results=(3,)),
        Op(kind="maximum", operands=(1, 3), results=(4,)),
        Op(kind=ALL_REDUCE, operands=(4,), results=(5,), attributes=SUMMED),
        Op(kind="sort", operands=(5,), results=(6,)),
    )
    step = put_in_order(of_ops((SIZE,) * 7, ops, (0,), (6,)))
    one, other = (each.incoming for each in sums_under_way(step.program, step.flow, MESH, 2) if each.num_bytes)
    assert one[0] < one[1] < other[0] <= other[1]
