"""Gathers that run beside products: what lives while they do."""

from __future__ import annotations

from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE
from meshwright.planner.memory.flow.flow import Flow, flow
from meshwright.planner.memory.level import level
from meshwright.planner.memory.order.gathered import awaited, gathers_beside, under_way, with_tuples
from meshwright.planner.memory.order.schedule import put_in_order
from meshwright.planner.memory.tensors.split_gathers import split_gathers
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


def twice(part: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether what is gathered of a part of this shape lies twice."""
    values = (Value(part, "f32"), Value(part, "f32"), Value(whole, "f32"), Value(whole, "f32"))
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        Op(kind=ALL_GATHER, operands=(1,), results=(2,), attributes=GATHERED),
        Op(kind="tanh", operands=(2,), results=(3,)),
    )
    found = split_gathers(of_ops(values, ops, (0,), (3,)))
    assert found in ({}, {2: 1})
    return bool(found)


def test_what_is_gathered_beside_products_is_copied_apart_once_it_is_there() -> None:
    """As compiled for v5e: f32[32,1024,32,64] of 32 devices comes beside products, and is copied behind the last."""
    values = (Value((1, 1024, 32, 64), "f32"),) * 2 + (Value((32, 1024, 32, 64), "f32"),) * 2
    ops = (
        Op(kind="tanh", operands=(0,), results=(1,)),
        Op(kind=ALL_GATHER, operands=(1,), results=(2,), attributes=GATHERED),
        Op(kind="tanh", operands=(2,), results=(3,)),
    )
    program = of_ops(values, ops, (0,), (3,))
    assert (split_gathers(program), split_gathers(program, {1: (1, 4)})) == ({2: 1}, {2: 4})


def test_groups_that_are_gathered_along_the_lanes_are_copied_apart() -> None:
    """As compiled for v3 to v5p of a group's routing of tokens to experts, whose tokens are on the lanes."""
    assert twice((1, 1024, 32, 64), (32, 1024, 32, 64))
    assert not twice((4, 1024, 32, 64), (32, 1024, 32, 64))
    assert not twice((1, 1024, 32, 1024), (32, 1024, 32, 1024))
    assert not twice((1, 1024, 64), (32, 1024, 64))
    assert not twice((1024, 32, 64, 1), (1024, 32, 64, 32))


def test_a_copy_of_what_is_gathered_lies_beside_it() -> None:
    size, whole = Value((1, 1024, 32, 64), "f32"), Value((32, 1024, 32, 64), "f32")
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind=ALL_GATHER, operands=(1,), results=(2,), attributes=GATHERED),
        Op(kind="sort", operands=(2,), results=(3,)),
    )
    program, chip = of_ops((size, size, whole, whole), ops, (0,), (3,)), catalogue()["v3"]
    placed = level(put_in_order(program, chip), chip)
    assert {b: (placed.relaid[b], span) for b, span in placed.spans.items() if b in placed.relaid} == {-3: (2, (1, 1))}
