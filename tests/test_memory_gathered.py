"""Gathers that run beside products: what lives while they do."""

from __future__ import annotations

from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE
from meshwright.planner.memory.flow.flow import Flow, flow
from meshwright.planner.memory.order.gathered import awaited, gathers_beside, under_way, with_tuples
from programs import form_bytes, of_ops

SIZE = Value((1024, 1024), "f32")
GATHERED = {"axes": ("x",)}


def with_flow(*ops: Op, arguments: int) -> tuple[Program, Flow]:
    values = (SIZE,) * (arguments + len(ops))
    program = of_ops(values, ops, tuple(range(arguments)), (len(values) - 1,))
    return program, flow(program, form_bytes, lambda _: 0)


def test_what_is_sent_lives_until_the_whole_is_awaited() -> None:
    """In an order in which the gather (2) stands before a product (3): v5e's programs send f32[64,512,512] so."""
    program, found = with_flow(
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind=ALL_GATHER, operands=(1,), results=(2,), attributes=GATHERED),
        Op(kind="dot_general", operands=(0, 0), results=(3,)),
        Op(kind=ALL_REDUCE, operands=(3,), results=(4,), attributes={"axes": ("y",)}),
        Op(kind="dot_general", operands=(2, 4), results=(5,)),
        arguments=1,
    )
    gathers = under_way(program, found)
    assert gathers == [(1, (1, 3))]
    assert awaited({1: (0, 1), 3: (2, 3)}, found, gathers) == {1: (0, 3), 3: (2, 3)}
    assert (found.places[3], with_tuples(program, found, gathers).places[3]) == (((4, 3),), ())


def test_only_v5e_makes_gathers_beside_products() -> None:
    assert [name for name, chip in catalogue().items() if gathers_beside(chip)] == ["v5e"]
