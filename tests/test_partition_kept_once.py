"""What a scatter adds to, where devices add parts of it: all but one begin with zeros."""

from __future__ import annotations

import pytest
from meshwright.planner.compute.work import work_of
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kinds import ALL_REDUCE
from meshwright.planner.partition.passes.kept_once import keep_once


def scattered(*, summed: bool, uniform: bool) -> Graph:
    table, rows = Value((4096, 128), "f32"), Value((256, 128), "f32")
    first = Op(kind="broadcast_in_dim" if uniform else "negate", operands=(0,), results=(1,))
    values = (Value((), "f32") if uniform else table, table, Value((256, 1), "s32"), rows, table, table)
    last = Op(kind=ALL_REDUCE if summed else "negate", operands=(4,), results=(5,), attributes={"axes": ("x",)})
    ops = (first, Op(kind="scatter", operands=(1, 2, 3), results=(4,)), last)
    return Graph(values=values, ops=ops, arguments=(0, 2, 3), results=(5,))


@pytest.mark.parametrize(("summed", "uniform"), [(True, True), (False, False)])
def test_nothing_is_selected_of_zeros_or_by_a_device_alone(summed: bool, uniform: bool) -> None:
    graph = scattered(summed=summed, uniform=uniform)
    assert keep_once(graph).ops == graph.ops


def test_one_device_keeps_what_all_add_to() -> None:
    found = keep_once(scattered(summed=True, uniform=False))
    *_, selected, scatter, _ = found.ops
    assert selected.kind == "select"
    assert selected.operands[1] == 1
    assert scatter.operands == (*selected.results, 2, 3)
    assert found.shape(selected.results[0]) == (4096, 128)


def test_what_is_selected_is_one_kernel_that_reads_what_it_keeps_alone() -> None:
    program = fuse(keep_once(scattered(summed=True, uniform=False)))
    kernel = next(kernel for kernel in program.kernels if program.graph.ops[kernel.ops[-1]].kind == "select")
    shapes = [program.graph.shape(value) for value in kernel.reads]
    assert [shape for shape in shapes if shape] == [(4096, 128)]
    assert not work_of(program.graph, kernel).single
