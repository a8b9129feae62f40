"""Sums of sums over devices."""

from __future__ import annotations

from meshwright.planner.graph import Op, Value
from meshwright.planner.kinds import ALL_REDUCE
from meshwright.planner.partition.passes.sums_of_sums import reassociate
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
