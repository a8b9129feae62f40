"""Sums over devices that other cores of a chip make: what they hold while they are under way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE
from meshwright.planner.memory import Memory, memory, put_in_order
from meshwright.planner.memory.kinds import COLLECTIVES
from programs import of_ops

MIB = 2**20
SIZE = Value((8192, 8192), "f32")


def gradient(sent: str, devices: int) -> Program:
    """A gradient (1) summed over devices (2), a product made meanwhile (3), and an update that takes both (4)."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind=sent, operands=(1,), results=(2,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind="dot_general", operands=(0, 0), results=(3,)),
        Op(kind="sort", operands=(2, 3), results=(4,)),
    )
    made = of_ops((SIZE,) * 5, ops, (0,), (4,))
    return replace(made, graph=replace(made.graph, mesh={"x": devices}))


def held(sent: str, chip: str, devices: int) -> Memory:
    return memory(gradient(sent, devices), catalogue()[chip])


@pytest.mark.parametrize(("devices", "incoming_mib"), [(2, 128), (4, 192)])
def test_a_sum_under_way_holds_what_is_summed_the_sum_and_what_comes_in(devices: int, incoming_mib: int) -> None:
    """As tpu7x's programs do: all-reduces of 82 MiB over 4 devices have 62 MiB besides, over 2 devices half."""
    found = held(ALL_REDUCE, "tpu7x", devices)
    assert found.peak is not None
    assert found.peak.num_bytes == (3 * 256 + incoming_mib) * MIB
    assert found.peak.bytes_by_kind[COLLECTIVES] >= incoming_mib * MIB
    assert "what a sum over devices receives" in [tensor.name for tensor in found.tensors]


def test_what_is_gathered_needs_nothing_besides() -> None:
    found = held(ALL_GATHER, "tpu7x", 4)
    assert found.peak is not None
    assert found.peak.num_bytes == 3 * 256 * MIB


def test_other_chips_write_a_sum_where_its_operand_lay() -> None:
    found = held(ALL_REDUCE, "v3", 4)
    assert found.peak is not None
    assert found.peak.num_bytes == 2 * 256 * MIB


def test_what_is_computed_of_a_sum_waits_behind_the_products() -> None:
    """An update of the sum alone does not stop the products; what a product needs of it does not wait."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind=ALL_REDUCE, operands=(1,), results=(2,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind="sort", operands=(2,), results=(3,)),
        Op(kind="cosine", operands=(2,), results=(4,)),
        Op(kind="dot_general", operands=(4, 0), results=(5,)),
    )
    made = of_ops((SIZE,) * 6, ops, (0,), (3, 5))
    made = replace(made, graph=replace(made.graph, mesh={"x": 4}))
    order = [made.graph.ops[k.ops[-1]].kind for k in put_in_order(made, catalogue()["tpu7x"]).program.kernels]
    assert order == ["sort", ALL_REDUCE, "cosine", "dot_general", "sort"]
