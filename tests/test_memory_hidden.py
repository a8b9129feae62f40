"""The order in which v5e hides gathers: from the end of the program, what takes their time beside them."""

from __future__ import annotations

from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE, COLLECTIVE_PERMUTE
from meshwright.planner.memory.flow.flow import flow
from meshwright.planner.memory.order.hidden import hidden
from programs import form_bytes, of_ops

SIZE = Value((1024, 1024), "f32")
GATHERED = {"axes": ("x",)}


def product(operands: tuple[int, int], results: tuple[int]) -> Op:
    said = {"lhs_contracting_dimensions": (1,), "rhs_contracting_dimensions": (0,)}
    return Op(kind="dot_general", operands=operands, results=results, attributes=said)


def order(*ops: Op, arguments: int, results: tuple[int, ...] = ()) -> list[int]:
    """Of kernels of one operation each: products take 27 us, gathers of 4 MiB 45, permutes 90."""
    values = (SIZE,) * (arguments + len(ops))
    program = of_ops(values, ops, tuple(range(arguments)), results or (len(values) - 1,))
    return hidden(program, flow(program, form_bytes, lambda _: 0), catalogue()["v5e"])


def test_a_gather_that_waits_for_none_begins_as_soon_as_it_can() -> None:
    """What is sorted (1) is gathered (5) for the last product (6), behind others (3) and a sum of these (4)."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="reverse", operands=(0,), results=(2,)),
        product((2, 2), (3,)),
        Op(kind=ALL_REDUCE, operands=(3,), results=(4,), attributes={"axes": ("y",)}),
        Op(kind=ALL_GATHER, operands=(1,), results=(5,), attributes=GATHERED),
        product((5, 4), (6,)),
    )
    assert order(*ops, arguments=1) == [0, 4, 1, 2, 3, 5]


def test_gathers_take_turns() -> None:
    """Arguments are sent by both, 45 us each: the one that is awaited last begins before two products, which take its
    time, for the other waits for its turn.
    """
    ops = (
        product((0, 0), (2,)),
        product((2, 2), (3,)),
        Op(kind=ALL_GATHER, operands=(0,), results=(4,), attributes=GATHERED),
        Op(kind=ALL_GATHER, operands=(1,), results=(5,), attributes=GATHERED),
        product((3, 4), (6,)),
        product((6, 5), (7,)),
    )
    assert order(*ops, arguments=2) == [2, 0, 3, 1, 4, 5]


def test_what_only_the_end_needs_stands_beside_a_gather() -> None:
    """A product (4) of what is made first, read by nothing else, hides the gather (5) of what is made just before."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        product((1, 1), (2,)),
        Op(kind="sort", operands=(1,), results=(3,)),
        Op(kind=ALL_GATHER, operands=(3,), results=(4,), attributes=GATHERED),
        product((4, 4), (5,)),
    )
    assert order(*ops, arguments=1, results=(2, 5)) == [0, 2, 3, 1, 4]


def test_what_only_the_end_needs_stands_beside_a_permute() -> None:
    """A product (2) that nothing reads stands between a permute (3) and what reads it (4)."""
    ops = (
        Op(kind=ALL_GATHER, operands=(0,), results=(1,), attributes=GATHERED),
        product((1, 1), (2,)),
        product((1, 2), (3,)),
        Op(kind=COLLECTIVE_PERMUTE, operands=(2,), results=(4,), attributes=GATHERED),
        product((4, 4), (5,)),
    )
    assert order(*ops, arguments=1, results=(3, 5)) == [0, 1, 3, 2, 4]


def test_numbers_by_which_is_scattered_are_gathered_before_all_that_waits_for_more() -> None:
    """Of 64 KiB (4), which only the last kernel needs: a kernel of its own goes through them, early as what it waits
    for is brief, and so they are gathered before the gather (3) of what the first product makes.
    """
    numbers = Value((128, 128), "s32")
    ops = (
        product((0, 0), (2,)),
        Op(kind=ALL_GATHER, operands=(2,), results=(3,), attributes=GATHERED),
        Op(kind=ALL_GATHER, operands=(1,), results=(4,), attributes=GATHERED),
        product((3, 3), (5,)),
        product((5, 5), (6,)),
        Op(kind="scatter", operands=(6, 4), results=(7,)),
    )
    values = (SIZE, numbers, SIZE, SIZE, numbers, SIZE, SIZE, SIZE)
    program = of_ops(values, ops, (0, 1), (7,))
    assert hidden(program, flow(program, form_bytes, lambda _: 0), catalogue()["v5e"]) == [2, 0, 1, 3, 4, 5]


def test_a_donated_argument_is_read_before_its_next_value_lies_there() -> None:
    """The update (4) waits for no gather, but the product (3) of what is gathered multiplies what it writes over."""
    ops = (
        Op(kind=ALL_GATHER, operands=(0,), results=(2,), attributes=GATHERED),
        product((2, 1), (3,)),
        Op(kind="negate", operands=(1,), results=(4,)),
    )
    program = of_ops((SIZE,) * 5, ops, (0, 1), (3, 4), aliases={1: 1})
    assert hidden(program, flow(program, form_bytes, lambda _: 0), catalogue()["v5e"]) == [0, 1, 2]
    free = of_ops((SIZE,) * 5, ops, (0, 1), (3, 4))
    assert hidden(free, flow(free, form_bytes, lambda _: 0), catalogue()["v5e"]) == [0, 2, 1]


def test_without_gathers_the_order_stays() -> None:
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="sort", operands=(0,), results=(2,)),
        product((1, 2), (3,)),
    )
    assert order(*ops, arguments=1) == [0, 1, 2]
