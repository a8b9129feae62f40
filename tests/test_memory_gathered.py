"""Gathers that run beside products: when they begin, and what lives meanwhile."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE
from meshwright.planner.memory.flow import Flow, flow
from meshwright.planner.memory.gathered import awaited, begun_early, gathers_beside, under_way, with_tuples
from programs import form_bytes, of_ops

SIZE = Value((1024, 1024), "f32")
GATHERED = {"axes": ("x",)}


def with_flow(*ops: Op, arguments: int) -> tuple[Program, Flow]:
    values = (SIZE,) * (arguments + len(ops))
    program = of_ops(values, ops, tuple(range(arguments)), (len(values) - 1,))
    return program, flow(program, form_bytes, lambda _: 0)


def step(kind: str) -> tuple[Program, Flow]:
    """What is sorted (1) is gathered (5) for the last product (6), behind another kernel (3), and a sum of that (4)."""
    return with_flow(
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="reverse", operands=(0,), results=(2,)),
        Op(kind=kind, operands=(2, 2), results=(3,)),
        Op(kind=ALL_REDUCE, operands=(3,), results=(4,), attributes={"axes": ("y",)}),
        Op(kind=ALL_GATHER, operands=(1,), results=(5,), attributes=GATHERED),
        Op(kind="dot_general", operands=(5, 4), results=(6,)),
        arguments=1,
    )


@pytest.mark.parametrize(("kind", "order"), [("dot_general", [0, 1, 4, 2, 3, 5]), ("sort", [0, 1, 2, 3, 4, 5])])
def test_a_gather_begins_before_the_first_product_that_it_can_run_beside(kind: str, order: list[int]) -> None:
    assert begun_early(*step(kind)) == order


def test_gathers_take_turns_of_a_product_each() -> None:
    """Arguments are sent by both: the one that is awaited last begins last, the other with the first product."""
    found = with_flow(
        Op(kind="dot_general", operands=(0, 0), results=(2,)),
        Op(kind="dot_general", operands=(2, 2), results=(3,)),
        Op(kind=ALL_GATHER, operands=(0,), results=(4,), attributes=GATHERED),
        Op(kind=ALL_GATHER, operands=(1,), results=(5,), attributes=GATHERED),
        Op(kind="dot_general", operands=(3, 4), results=(6,)),
        Op(kind="dot_general", operands=(6, 5), results=(7,)),
        arguments=2,
    )
    assert begun_early(*found) == [2, 0, 1, 3, 4, 5]


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
