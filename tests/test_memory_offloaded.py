"""Sums over devices that other cores of a chip make: what they hold while they are under way."""

from __future__ import annotations

from dataclasses import replace

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from meshwright.planner.memory import Memory, memory, put_in_order
from meshwright.planner.memory.kinds import COLLECTIVES
from meshwright.planner.memory.order.offloaded import incoming_bytes
from programs import of_ops

MIB = 2**20
SIZE = Value((8192, 8192), "f32")


def gradient(sent: str, mesh: dict[str, int]) -> Program:
    """A gradient (1) summed over devices (2), a product made meanwhile (3), and an update that takes both (4)."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind=sent, operands=(1,), results=(2,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind="dot_general", operands=(0, 0), results=(3,)),
        Op(kind="sort", operands=(2, 3), results=(4,)),
    )
    made = of_ops((SIZE,) * 5, ops, (0,), (4,))
    return replace(made, graph=replace(made.graph, mesh=mesh))


def held(sent: str, chip: str, mesh: dict[str, int]) -> Memory:
    return memory(gradient(sent, mesh), catalogue()[chip])


@pytest.mark.parametrize(
    ("mesh", "incoming_mib"), [({"x": 2}, 128), ({"x": 4}, 64), ({"x": 4, "y": 4}, 192), ({"x": 4, "y": 1}, 64)]
)
def test_a_sum_under_way_holds_what_is_summed_the_sum_and_what_comes_in(
    mesh: dict[str, int], incoming_mib: int
) -> None:
    """As tpu7x's programs do: all-reduces of 64 MiB have 48 besides over 4 devices of as many chips, 16 over two whole
    chips, 32 over 2 devices."""
    found = held(ALL_REDUCE, "tpu7x", mesh)
    assert found.temp_bytes == (3 * 256 + incoming_mib) * MIB
    assert max(point.bytes_by_kind.get(COLLECTIVES, 0) for point in found.points) >= incoming_mib * MIB


@pytest.mark.parametrize(
    ("axes", "sizes", "coming"),
    [
        (("x",), (4, 4), 2),
        (("y",), (4, 4), 2),
        (("y:(2)2",), (4, 4), 0),
        (("x", "y"), (4, 4), 0),
        (("y",), (2, 8), 6),
        (("x",), (8, 2), 0),
    ],
)
def test_what_is_scattered_too_has_all_but_two_parts_besides(
    axes: tuple[str, ...], sizes: tuple[int, int], coming: int
) -> None:
    """As programs for tpu7x:2x2x2 do, of parts of 1 MiB; over all of its chips it needs none."""
    assert incoming_bytes(REDUCE_SCATTER, MIB, axes, dict(zip("xy", sizes, strict=True)), 2) == coming * MIB


def test_what_comes_in_for_one_sum_takes_the_place_of_what_came_for_the_one_before() -> None:
    """Though that is still under way: these cores take one after the other."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind=ALL_REDUCE, operands=(1,), results=(2,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind="sort", operands=(0,), results=(3,)),
        Op(kind=ALL_REDUCE, operands=(3,), results=(4,), attributes={"axes": ("x",), "reducer": "add"}),
        Op(kind="sort", operands=(2, 4), results=(5,)),
    )
    made = of_ops((SIZE,) * 6, ops, (0,), (5,))
    found = memory(replace(made, graph=replace(made.graph, mesh={"x": 2})), catalogue()["tpu7x"])
    assert found.temp_bytes == (4 * 256 + 128) * MIB


def test_what_is_gathered_needs_nothing_besides() -> None:
    found = held(ALL_GATHER, "tpu7x", {"x": 4})
    assert found.peak is not None
    assert found.peak.num_bytes == 3 * 256 * MIB


def test_other_chips_write_a_sum_where_its_operand_lay() -> None:
    found = held(ALL_REDUCE, "v3", {"x": 4})
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


@pytest.mark.parametrize(("chip", "temporary_mib"), [("tpu7x", 256 + 256 + 128), ("v3", 256)])
def test_results_are_copies_of_the_sums_that_other_cores_make(chip: str, temporary_mib: int) -> None:
    """Until the end of the program: for tpu7x:2x2x2 two gradients of 16 MiB summed over four devices, the results of a
    step, have 88 MiB of temporaries, 156.3 with all else (155.7 are predicted); where a chip sums itself the sum is the
    result.
    """
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind=ALL_REDUCE, operands=(1,), results=(2,), attributes={"axes": ("x",), "reducer": "add"}),
    )
    made = of_ops((SIZE,) * 3, ops, (0,), (2,))
    found = memory(replace(made, graph=replace(made.graph, mesh={"x": 2})), catalogue()[chip])
    assert (found.output_bytes, found.temp_bytes) == (256 * MIB, temporary_mib * MIB)
