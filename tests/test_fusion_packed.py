"""Copies of weights in half words that a loop cuts pieces of, where tiles have more rows than arguments'."""

from __future__ import annotations

import pytest
from meshwright.planner.fusion import fuse, with_packed
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import TURNED_COPY

INDEX = Value((), "s32")


def scanned(*weights: int, summed: tuple[int, ...] = (0,), dtype: str = "bf16", given: bool = True) -> Graph:
    """A loop whose turns multiply rows by their layer of a stack of such weights, summing these dims of it."""
    rows = tuple(weights[dim] for dim in summed)
    left = tuple(size for dim, size in enumerate(weights) if dim not in summed)
    shapes = ((8, *rows), (3, *weights), (1, *weights), weights, (8, *left))
    values = (*(Value(shape, dtype) for shape in shapes), INDEX)
    said = {"lhs_contracting_dimensions": tuple(range(1, 1 + len(rows))), "rhs_contracting_dimensions": summed}
    ops = (
        Op(kind="dynamic_slice", operands=(1, *(5 for _ in shapes[1])), results=(2,)),
        Op(kind="reshape", operands=(2,), results=(3,)),
        Op(kind="dot_general", operands=(0, 3), results=(4,), attributes=said),
    )
    body = Graph(values=values, ops=ops, arguments=(0, 1, 5), results=(0, 1, 5, 4))
    outer = (values[0], values[1], INDEX, values[1], values[0], values[1], INDEX, values[4])
    made = () if given else (Op(kind="tanh", operands=(1,), results=(3,)),)
    loop = Op(kind="while", operands=(0, 1 if given else 3, 2), results=(4, 5, 6, 7), bodies=(body,), trips=3)
    return Graph(values=outer, ops=(*made, loop), arguments=(0, 1, 2), results=(7,))


def copied(program: Program) -> list[int]:
    return [program.graph.ops[kernel.ops[0]].operands[0] for kernel in program.kernels if _copies(program, kernel.ops)]


def _copies(program: Program, ops: tuple[int, ...]) -> bool:
    return [program.graph.ops[number].kind for number in ops] == [TURNED_COPY]


@pytest.mark.parametrize(("weights", "summed"), [((2048, 2048), (0,)), ((4, 128, 2048), (0, 1)), ((1024, 4, 64), (0,))])
def test_stacks_of_half_words_are_copied_before_the_loop_that_cuts_them(
    weights: tuple[int, ...], summed: tuple[int, ...]
) -> None:
    """Feed-forward and output weights, and those of heads of 64, of a decoder scanned for TPU7x."""
    program = with_packed(fuse(scanned(*weights, summed=summed)))
    copy, loop = program.kernels
    assert copied(program) == [1]
    assert copy.writes[0] in loop.reads
    assert 1 not in loop.reads
    assert copy.writes[0] in program.graph.ops[loop.ops[0]].operands


@pytest.mark.parametrize(
    "graph",
    [scanned(2048, 2, 128), scanned(2048, 2048, dtype="f32"), scanned(2048, 2048, given=False)],
    ids=["few rows", "words", "made by the step"],
)
def test_others_are_read_where_they_lie(graph: Graph) -> None:
    assert copied(with_packed(fuse(graph))) == []
