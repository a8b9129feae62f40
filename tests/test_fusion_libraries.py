"""Kernels on a GPU: libraries multiply whole arrays, rows are passed once, nothing is made narrow."""

from __future__ import annotations

import pytest
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph
from meshwright.planner.kernels import Program
from test_fusion import Writer, kinds


def products(program: Program) -> list[dict[str, int]]:
    found = (kinds(program, kernel) for kernel in program.kernels)
    return [dict(each) for each in found if "dot_general" in each]


def softmax(rows: int, length: int) -> Graph:
    w = Writer()
    x = w.arg(rows, length)
    shifted = w.op("subtract", x, w.spread(w.total(x, 1, reducer="maximum"), rows, length, dims=(0,)))
    raised = w.op("exponential", shifted)
    return w.graph(w.op("divide", raised, w.spread(w.total(raised, 1), rows, length, dims=(0,))))


def test_a_library_reads_and_writes_whole_arrays() -> None:
    w = Writer()
    x, weight = w.arg(512, 256), w.arg(256, 1024)
    y = w.op("tanh", w.dot(w.op("exponential", x), weight))
    graph = w.graph(y)
    assert products(fuse(graph)) == [{"exponential": 1, "dot_general": 1, "tanh": 1}]
    program = fuse(graph, is_gpu=True)
    assert products(program) == [{"dot_general": 1}]
    assert len(program.kernels) == 3


def test_a_library_rounds_what_it_writes() -> None:
    w = Writer()
    x, weight = w.arg(512, 256, dtype="bf16"), w.arg(256, 1024, dtype="bf16")
    made = w.op("dot_general", x, weight, shape=(512, 1024), dtype="f32", lhs_contracting_dimensions=(1,),
                rhs_contracting_dimensions=(0,))  # fmt: skip
    program = fuse(w.graph(w.op("convert", made, dtype="bf16")), is_gpu=True)
    assert products(program) == [{"dot_general": 1, "convert": 1}]
    assert len(program.kernels) == 1


def test_what_only_products_read_stays_as_wide_as_it_is() -> None:
    w = Writer()
    x, weight = w.arg(512, 256), w.arg(256, 1024)
    graph = w.graph(w.dot(w.op("exponential", x), weight))
    for is_gpu in (False, True):
        program = fuse(graph, is_gpu=is_gpu)
        made = next(op.results[0] for op in program.graph.ops if op.kind == "exponential")
        assert program.graph.values[made].dtype == ("f32" if is_gpu else "bf16")


@pytest.mark.parametrize(("length", "kernels"), [(1024, 1), (16384, 1), (32768, 3)])
def test_rows_that_fit_into_a_processor_are_passed_once(length: int, kernels: int) -> None:
    graph = softmax(64, length)
    assert len(fuse(graph, is_gpu=True).kernels) == kernels
    assert len(fuse(graph).kernels) == 3


def test_columns_are_no_rows() -> None:
    w = Writer()
    x = w.arg(1024, 512)
    centred = w.op("subtract", x, w.spread(w.total(x, 0), 1024, 512, dims=(1,)))
    assert len(fuse(w.graph(centred), is_gpu=True).kernels) == 2


def test_what_rows_are_reduced_to_may_be_computed_with_before_it_is_spread() -> None:
    w = Writer()
    x = w.arg(1024, 512)
    mean = w.op("divide", w.total(x, 1), w.spread(w.scalar(512.0), 1024))
    centred = w.op("subtract", x, w.spread(mean, 1024, 512, dims=(0,)))
    assert len(fuse(w.graph(centred), is_gpu=True).kernels) == 1


def test_what_is_looked_up_is_computed_where_it_is_looked_up() -> None:
    w = Writer()
    x, ids = w.arg(4096, 512, dtype="bf16"), w.arg(64, 1, dtype="s32")
    wide = w.op("convert", x, dtype="f32")
    picked = w.op("gather", wide, ids, shape=(64, 512), offset_dims=(1,), collapsed_slice_dims=(0,),
                  slice_sizes=(1, 512), start_index_map=(0,), index_vector_dim=1)  # fmt: skip
    summed = w.total(wide, 1)
    for is_gpu in (False, True):
        program = fuse(w.graph(picked, summed), is_gpu=is_gpu)
        written = {value for kernel in program.kernels for value in kernel.writes}
        assert (wide in written) != is_gpu
