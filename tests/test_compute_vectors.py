"""Products by a vector beside the TPU compiler's cycles: fused multiplications and sums, not the matrix unit's."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import price
from meshwright.planner.compute.scaled import scaled
from meshwright.planner.compute.work import work_of
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Kernel, Program


def by_matrix(rows: int, dtype: str) -> Program:
    """So many rows of 4096 by a square matrix."""
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    values = (Value((rows, 4096), dtype), Value((4096, 4096), dtype), Value((rows, 4096), dtype))
    product = Op(kind="dot_general", operands=(0, 1), results=(2,), attributes=said)
    return fuse(Graph(values=values, ops=(product,), arguments=(0, 1), results=(2,)))


@pytest.mark.parametrize(
    ("name", "dtype", "counted"),
    [
        ("v3", "f32", 300_420),
        ("v3", "bf16", 226_990),
        ("v4", "f32", 299_280),
        ("v4", "bf16", 227_550),
        ("v5e", "f32", 303_250),
        ("v5e", "bf16", 235_020),
        ("v5p", "f32", 118_140),
        ("v5p", "bf16", 93_150),
        ("v6e", "f32", 178_530),
        ("v6e", "bf16", 142_670),
    ],
)
def test_a_matrix_by_a_vector_goes_through_its_products_as_if_they_were_written(
    name: str, dtype: str, counted: int
) -> None:
    (kernel,) = price(by_matrix(1, dtype), catalogue()[name])
    assert kernel.cycles == pytest.approx(counted, rel=0.12)


@pytest.mark.parametrize("rows", [1, 2])
def test_work_that_is_scaled_is_that_which_is_counted(rows: int) -> None:
    program = by_matrix(rows, "f32")
    (kernel,) = program.kernels
    counted = work_of(program.graph, kernel)
    found = scaled(program.graph, kernel, lambda value: value).work(program.graph)
    assert (found.kind, found.products, found.spill_bytes) == (counted.kind, counted.products, counted.spill_bytes)
    assert found.registers == pytest.approx(counted.registers)
    assert (counted.kind == "loop") == (rows == 1)


def test_rows_that_wait_for_their_maximum_are_scaled_so() -> None:
    """Softmax: what is known of such a kernel in other shapes is that its rows wait for memory as a whole."""
    rows, number = Value((8, 4096), "f32"), Value((8,), "f32")
    ops = (
        Op(kind="reduce", operands=(0, 1), results=(2,), attributes={"dimensions": (1,), "reducer": "maximum"}),
        Op(kind="broadcast_in_dim", operands=(2,), results=(3,), attributes={"broadcast_dimensions": (0,)}),
        Op(kind="subtract", operands=(0, 3), results=(4,)),
        Op(kind="exponential", operands=(4,), results=(5,)),
    )
    values = (rows, Value((), "f32"), number, rows, rows, rows)
    graph = Graph(values=values, ops=ops, arguments=(0, 1), results=(5,))
    kernel = Kernel(ops=(0, 1, 2, 3), reads=(0, 1), writes=(5,))
    counted, found = work_of(graph, kernel), scaled(graph, kernel, lambda value: value).work(graph)
    assert counted.windowed
    assert found.windowed
    assert found.registers == pytest.approx(counted.registers)


@pytest.mark.parametrize(
    ("rows", "counted"), [(8, 373), (16, 515), (64, 1294), (128, 2346), (256, 4308), (1024, 15500)]
)
def test_what_fills_no_window_waits_for_less_of_one(rows: int, counted: int) -> None:
    """tanh(x * y) + x of f32[rows,512] on v3: as what turns of a loop over time compute of few numbers."""
    value = Value((rows, 512), "f32")
    kinds = (("multiply", (0, 1)), ("tanh", (2,)), ("add", (3, 0)))
    ops = tuple(Op(kind=kind, operands=given, results=(2 + n,)) for n, (kind, given) in enumerate(kinds))
    (kernel,) = price(fuse(Graph(values=(value,) * 5, ops=ops, arguments=(0, 1), results=(4,))), catalogue()["v3"])
    assert kernel.cycles == pytest.approx(counted, rel=0.15)
