"""What turns of a loop take of stacks that lie as they come, as a decoder's weights and caches of whole heads do."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.compute import KernelPrice, price
from meshwright.planner.compute.copies.caches import few_rows
from meshwright.planner.compute.copies.few_rows import lying_whole
from meshwright.planner.compute.single_ops import turn_seconds
from meshwright.planner.compute.speed import speed_of
from meshwright.planner.fusion import fuse
from meshwright.planner.graph import Graph, Op, Value

INDEX = Value((), "s32")
SUMS_FIRST = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}


def looped(body: Graph) -> Graph:
    """A loop of three turns of this body, whose arguments and results are those of the step."""
    values = (*(body.values[v] for v in body.arguments), *(body.values[v] for v in body.results))
    count = len(body.arguments)
    made = tuple(range(count, count + len(body.results)))
    loop = Op(kind="while", operands=tuple(range(count)), results=made, bodies=(body,), trips=3)
    return Graph(values=values, ops=(loop,), arguments=tuple(range(count)), results=made)


def cutting(*shape: int) -> Graph:
    """A turn that cuts a piece of such a shape out of a stack of three."""
    stack, piece = Value((3, *shape), "bf16"), Value((1, *shape), "bf16")
    cut = Op(kind="dynamic_slice", operands=(0, 1, *(1 for _ in shape)), results=(2,))
    return looped(Graph(values=(stack, INDEX, piece), ops=(cut,), arguments=(0, 1), results=(0, 1, 2)))


def putting(*shape: int) -> Graph:
    """A turn that puts a piece of such a shape into a stack of three."""
    stack, piece = Value((3, *shape), "bf16"), Value((1, *shape), "bf16")
    put = Op(kind="dynamic_update_slice", operands=(0, 2, 1, *(1 for _ in shape)), results=(3,))
    return looped(Graph(values=(stack, INDEX, piece, stack), ops=(put,), arguments=(0, 1, 2), results=(3, 1, 2)))


def multiplying(heads: int, size: int) -> Graph:
    """A turn that multiplies four rows by its layer of a stack of weights, features by heads by their size."""
    shapes = (4, 2048), (3, 2048, heads, size), (1, 2048, heads, size), (2048, heads, size), (4, heads, size)
    values = (*(Value(shape, "bf16") for shape in shapes), INDEX)
    ops = (
        Op(kind="dynamic_slice", operands=(1, 5, 5, 5, 5), results=(2,)),
        Op(kind="reshape", operands=(2,), results=(3,)),
        Op(kind="dot_general", operands=(0, 3), results=(4,), attributes=SUMS_FIRST),
    )
    return looped(Graph(values=values, ops=ops, arguments=(0, 1, 5), results=(0, 1, 5, 4)))


def kernels(graph: Graph, name: str) -> tuple[KernelPrice, ...]:
    return price(fuse(graph), catalogue()[name])


@pytest.mark.parametrize(
    ("name", "rows", "compiled"),
    [("v4", 2, 50292), ("v5e", 2, 46412), ("v5e", 4, 25722), ("v5p", 2, 17704), ("v6e", 2, 25352), ("v6e", 4, 16202)],
)
def test_tiles_of_few_rows_are_moved_one_by_one(name: str, rows: int, compiled: int) -> None:
    """A cache of [4,1024,2,128], and of as many numbers in half as many tiles."""
    (found,) = kernels(cutting(4, 2048 // rows, rows, 128), name)
    assert found.cycles == pytest.approx(compiled, rel=0.2)


@pytest.mark.parametrize("rows", [3, 8])
def test_other_rows_are_moved_as_bytes(rows: int) -> None:
    (few,), (found,) = (kernels(cutting(4, 1024, count, 128), "v5e") for count in (2, rows))
    assert found.cycles / rows < 0.5 * few.cycles / 2


def test_a_piece_is_put_into_a_stack_in_windows_as_large_as_it_is_cut_out_in() -> None:
    """A cache of [4,2,1024,128] on v5e: 15377 cycles either way."""
    cut, put = (kernels(graph(4, 2, 1024, 128), "v5e")[0] for graph in (cutting, putting))
    assert put.cycles == pytest.approx(cut.cycles, rel=0.25)


@pytest.mark.parametrize(("name", "compiled"), [("v4", 39723 + 7910), ("v5e", 29986 + 3783), ("v5p", 12252 + 3106)])
def test_no_product_cuts_its_piece_out_if_it_sums_outside_of_tiles(name: str, compiled: int) -> None:
    """Weights of eight heads of 128: cut out before; of heads of 64, which lie otherwise, in passing."""
    found, passing = (kernels(multiplying(heads, size), name)[-1] for heads, size in ((8, 128), (16, 64)))
    assert found.cycles == pytest.approx(compiled, rel=0.25)
    assert passing.cycles < 0.75 * found.cycles


def test_weights_of_few_rows_fill_registers_no_more_than_caches() -> None:
    """By a vector they are multiplied so (v5e, v6e); on v3 they lie otherwise."""
    values = (Value((2048, 4, 128), "bf16"), Value((2048, 8, 128), "bf16"))
    graph = Graph(values=values, ops=(), arguments=(0, 1), results=())
    whole = {
        name: lying_whole(graph, (0, 1), speed_of(catalogue()[name]).coefficients) for name in ("v3", "v5e", "v6e")
    }
    assert {name: few_rows(graph, found) for name, found in whole.items()} == {"v3": {}, "v5e": {0: 2}, "v6e": {0: 2}}


def test_what_has_no_rows_takes_no_time_for_them() -> None:
    """As what a roll of the only row cuts out: it was a division by zero."""
    speed = speed_of(catalogue()["v3"])
    empty, one = (turn_seconds(Value((2, 1024, rows, 512), "f32"), (), speed) for rows in (0, 1))
    assert 0 <= empty < one
