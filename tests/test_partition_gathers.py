"""Gathers that the compiler makes sums of what devices have among zeros."""

from __future__ import annotations

import pytest
from meshwright.dsl.machine import parse_topology
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE
from meshwright.planner.partition.passes.summed_gathers import sum_whole_gathers
from meshwright.planner.partition.target import target
from meshwright.planner.topology import physical

KIB_ROW = 1024 * 4


def summed(machine: str, mesh: dict[str, int], axes: tuple[str, ...], num_bytes: int) -> bool:
    """Whether a gather of so many bytes in rows of 4 KiB is a sum, inside of a loop as outside."""
    ways = 1
    for axis in axes:
        ways *= mesh[axis]
    whole = Value((num_bytes // KIB_ROW, 1024), "f32")
    part = Value((whole.shape[0] // ways, 1024), "f32")
    gather = Op(kind=ALL_GATHER, operands=(0,), results=(1,), attributes={"axes": axes, "dimensions": (0,)})
    body = Graph(values=(part, whole), ops=(gather,), arguments=(0,), results=(1,))
    loop = Op(kind="while", operands=(0,), results=(1,), bodies=(body,), trips=4)
    known = physical(parse_topology(machine))
    goal = target("tpu", known, known.num_devices)
    found = [
        sum_whole_gathers(Graph(values=(part, whole), ops=(op,), arguments=(0,), results=(1,)), goal, mesh)
        for op in (gather, loop)
    ]
    kinds = {tuple(op.kind for _, op, _ in graph.walk() if op.kind != "while") for graph in found}
    assert len(kinds) == 1
    (made,) = kinds
    assert made in (("constant", "broadcast_in_dim", "dynamic_update_slice", ALL_REDUCE), (ALL_GATHER,))
    return made != (ALL_GATHER,)


@pytest.mark.parametrize(
    ("machine", "mesh", "axes", "mib", "is_sum"),
    [
        ("v5e:8x8", {"x": 8, "y": 8}, ("x", "y"), 16, True),
        ("v5e:8x8", {"x": 8, "y": 8}, ("x", "y"), 17, False),
        ("v5e:8x8", {"x": 8, "y": 8}, ("x",), 1, False),
        ("v3:4x8", {"x": 64}, ("x",), 16, True),
        ("v3:4x4", {"x": 32}, ("x",), 1, False),
        ("v5e:4x12", {"x": 48}, ("x",), 3, False),
        ("v5e:16x16", {"x": 4, "y": 64}, ("y",), 1, False),
        ("v5p:4x4x4", {"x": 8, "y": 8}, ("y", "x"), 1024, True),
        ("v5p:2x4x4", {"x": 4, "y": 8}, ("x", "y"), 1, False),
        ("v4:2x2x8", {"x": 64}, ("x",), 512, True),
        ("2*v5e:8x8", {"s": 2, "x": 64}, ("x",), 1, True),
        ("2*v5e:4x8", {"s": 2, "x": 32}, ("s", "x"), 1, False),
    ],
)
def test_gathers_of_whole_slices_are_sums_as_compiled(
    machine: str, mesh: dict[str, int], axes: tuple[str, ...], mib: int, is_sum: bool
) -> None:
    """As libtpu 0.0.51 compiled an argument split over these axes and handed on whole."""
    assert summed(machine, mesh, axes, mib * 2**20) == is_sum
