"""Gathers that the compiler makes sums of what devices have among zeros."""

from __future__ import annotations

import pytest
from meshwright.dsl.machine import parse_topology
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE
from meshwright.planner.partition.passes.narrow import SENT_ROUNDED
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


@pytest.mark.parametrize(("mib", "is_sum"), [(8, True), (9, False)])
@pytest.mark.parametrize("attributes", [{}, SENT_ROUNDED])
def test_what_is_rounded_to_be_sent_counts_as_it_was(mib: int, is_sum: bool, attributes: dict[str, bool]) -> None:
    """As compiled for v5e:8x8, rounded by the model or for a product: 8 MiB of bfloat16 are a sum, 9 are gathered."""
    rows = mib * 2**20 // 2048
    values = (Value((rows // 64, 1024), "f32"), Value((rows // 64, 1024), "bf16"), Value((rows, 1024), "bf16"))
    ops = (
        Op(kind="convert", operands=(0,), results=(1,), attributes=attributes),
        Op(kind=ALL_GATHER, operands=(1,), results=(2,), attributes={"axes": ("x",), "dimensions": (0,)}),
    )
    goal = target("tpu", physical(parse_topology("v5e:8x8")), 64)
    found = sum_whole_gathers(Graph(values=values, ops=ops, arguments=(0,), results=(2,)), goal, {"x": 64})
    assert (ALL_REDUCE in {op.kind for op in found.ops}) == is_sum
    if is_sum:
        (update,) = (op for op in found.ops if op.kind == "dynamic_update_slice")
        written, part = (found.values[value].dtype for value in update.operands)
        assert written == part == ("f32" if attributes else "bf16")
