"""The tuples of operations of several results, which lie in the large memory."""

from __future__ import annotations

from dataclasses import replace

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Kernel, Program
from meshwright.planner.kinds import COLLECTIVE_PERMUTE
from meshwright.planner.memory import put_in_order
from meshwright.planner.memory.level import level
from meshwright.planner.memory.tuples import TUPLE_BYTES, tuple_bytes
from programs import of_ops

MIB = 2**20
LARGE = Value((16384, 16384), "f32")
"""Of which no chip keeps any near."""


def counted(kind: str, program: Program) -> int:
    chip = catalogue()[kind]
    return tuple_bytes(level(put_in_order(program, chip), chip), chip) // TUPLE_BYTES


@pytest.mark.parametrize(("kind", "count"), [("v3", 0), ("v4", 1), ("v5e", 0), ("v5p", 1), ("v6e", 1)])
def test_what_is_sent_has_one_where_it_is_awaited_apart(kind: str, count: int) -> None:
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        Op(kind=COLLECTIVE_PERMUTE, operands=(1,), results=(2,), attributes={"axes": ("x",)}),
    )
    assert counted(kind, of_ops((LARGE,) * 3, ops, (0,), (2,))) == count


@pytest.mark.parametrize(("kind", "count"), [("v3", 0), ("v5e", 1)])
def test_a_kernel_of_several_results_has_one(kind: str, count: int) -> None:
    ops = (Op(kind="tanh", operands=(0,), results=(1,)), Op(kind="exponential", operands=(0,), results=(2,)))
    graph = of_ops((LARGE,) * 3, ops, (0,), (1, 2)).graph
    both = Kernel(ops=(0, 1), reads=(0,), writes=(1, 2))
    assert counted(kind, Program(graph=graph, kernels=(both,))) == count


@pytest.mark.parametrize(
    ("kind", "shape", "pieces"),
    [
        ("v5e", (512, 2048), 4),
        ("v5e", (2, 512, 2048), 2),
        ("v4", (3, 512, 512), 3),
        ("v4", (128, 512), 1),
        ("v6e", (1, 2048, 2048), 4),
        ("v6e", (2048, 1024), 2),
        ("v6e", (1024, 1024), 1),
        ("tpu7x", (16384, 1024), 16),
    ],
)
def test_what_is_fetched_comes_in_pieces(kind: str, shape: tuple[int, ...], pieces: int) -> None:
    """As compiled: v4 and v5e cut the first dim in four, from a MiB on; v6e and TPU7x cut pieces of 4 MiB."""
    cut, held = catalogue()[kind].fetched_in, Value(shape, "f32")
    assert cut is not None
    assert cut.pieces(held.shape, held.num_bytes) == pieces


def test_an_argument_that_is_fetched_has_one_for_each_copy() -> None:
    """An array that a product waits for: v5p fetches it whole, v6e in two pieces with two each; and there the
    result has room to be made near and brought back.
    """
    weights, rows = Value((2048, 1024), "f32"), Value((16384, 2048), "f32")
    summed = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    ops = (
        Op(kind="tanh", operands=(0,), results=(2,)),
        Op(kind="dot_general", operands=(2, 1), results=(3,), attributes=summed),
    )
    program = of_ops((rows, weights, rows, Value((16384, 1024), "f32")), ops, (0, 1), (3,))
    assert (counted("v5p", program), counted("v6e", program)) == (1, 5)


def test_what_a_loop_is_given_near_and_hands_on_is_not_copied() -> None:
    """Numbers everywhere that it begins with are made there: a GRU's step for v5e:4x4, of two scans that carry 18
    arrays in vector memory, has 37 tuples in all (38 and its results' are predicted).
    """
    small = Value((128, 128), "f32")
    turn = of_ops((small,) * 2, (Op(kind="tanh", operands=(0,), results=(1,)),), (0,), (1,))
    ops = (
        Op(kind="broadcast_in_dim", operands=(0,), results=(1,)),
        Op(kind="while", operands=(1,), results=(2,), bodies=(turn.graph,), trips=8),
        Op(kind="dot_general", operands=(2, 2), results=(3,), attributes={"lhs_contracting_dimensions": (1,)}),
    )
    around = of_ops((Value((), "f32"), small, small, LARGE), ops, (), (3,))
    kernels = tuple(replace(k, bodies=(turn,)) if ops[k.ops[0]].kind == "while" else k for k in around.kernels)
    assert counted("v5e", replace(around, kernels=kernels)) == 1
