"""The order in which v5e hides gathers: from the end of the program, what takes their time beside them."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE, COLLECTIVE_PERMUTE
from meshwright.planner.memory.flow import flow
from meshwright.planner.memory.hidden import hidden
from programs import form_bytes, of_ops

SIZE = Value((1024, 1024), "f32")
GATHERED = {"axes": ("x",)}


def order(*ops: Op, arguments: int, results: tuple[int, ...] = ()) -> list[int]:
    """Of kernels of one operation each: they take 10 to 15 us, and gathers 10."""
    values = (SIZE,) * (arguments + len(ops))
    program = of_ops(values, ops, tuple(range(arguments)), results or (len(values) - 1,))
    return hidden(program, flow(program, form_bytes, lambda _: 0), catalogue()["v5e"])


@pytest.mark.parametrize(("kind", "found"), [("dot_general", [0, 1, 4, 2, 3, 5]), ("sort", [0, 1, 4, 2, 3, 5])])
def test_a_gather_stands_before_what_takes_its_time(kind: str, found: list[int]) -> None:
    """What is sorted (1) is gathered (5) for the last product (6), behind another kernel (3), and a sum of that (4)."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="reverse", operands=(0,), results=(2,)),
        Op(kind=kind, operands=(2, 2), results=(3,)),
        Op(kind=ALL_REDUCE, operands=(3,), results=(4,), attributes={"axes": ("y",)}),
        Op(kind=ALL_GATHER, operands=(1,), results=(5,), attributes=GATHERED),
        Op(kind="dot_general", operands=(5, 4), results=(6,)),
    )
    assert order(*ops, arguments=1) == found


def test_gathers_take_turns() -> None:
    """Arguments are sent by both: the one that is awaited last begins last, the other before what is left."""
    ops = (
        Op(kind="dot_general", operands=(0, 0), results=(2,)),
        Op(kind="dot_general", operands=(2, 2), results=(3,)),
        Op(kind=ALL_GATHER, operands=(0,), results=(4,), attributes=GATHERED),
        Op(kind=ALL_GATHER, operands=(1,), results=(5,), attributes=GATHERED),
        Op(kind="dot_general", operands=(3, 4), results=(6,)),
        Op(kind="dot_general", operands=(6, 5), results=(7,)),
    )
    assert order(*ops, arguments=2) == [2, 0, 1, 3, 4, 5]


def test_what_only_the_end_needs_stands_beside_a_gather() -> None:
    """A product (4) of what is made first, read by nothing else, hides the gather (5) of what is made just before."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="dot_general", operands=(1, 1), results=(2,)),
        Op(kind="sort", operands=(1,), results=(3,)),
        Op(kind=ALL_GATHER, operands=(3,), results=(4,), attributes=GATHERED),
        Op(kind="dot_general", operands=(4, 4), results=(5,)),
    )
    assert order(*ops, arguments=1, results=(2, 5)) == [0, 2, 3, 1, 4]


@pytest.mark.parametrize(("kind", "found"), [(COLLECTIVE_PERMUTE, [0, 1, 3, 2, 4]), ("sort", [0, 1, 2, 3, 4])])
def test_what_only_the_end_needs_stands_beside_a_permute(kind: str, found: list[int]) -> None:
    """A product (2) that nothing reads stands between a permute (3) and what reads it (4)."""
    ops = (
        Op(kind=ALL_GATHER, operands=(0,), results=(1,), attributes=GATHERED),
        Op(kind="dot_general", operands=(1, 1), results=(2,)),
        Op(kind="dot_general", operands=(1, 2), results=(3,)),
        Op(kind=kind, operands=(2,), results=(4,), attributes=GATHERED),
        Op(kind="dot_general", operands=(4, 4), results=(5,)),
    )
    assert order(*ops, arguments=1, results=(3, 5)) == found


def test_a_brief_gather_of_an_argument_begins_before_all_that_waits_for_one() -> None:
    """Of 64 KiB (4), which only the last kernel needs: it begins with the program, not behind the gather (3) of what
    the first product makes, as one of 4 MiB would.
    """
    small = Value((128, 128), "f32")
    ops = (
        Op(kind="dot_general", operands=(0, 0), results=(2,)),
        Op(kind=ALL_GATHER, operands=(2,), results=(3,), attributes=GATHERED),
        Op(kind=ALL_GATHER, operands=(1,), results=(4,), attributes=GATHERED),
        Op(kind="dot_general", operands=(3, 3), results=(5,)),
        Op(kind="dot_general", operands=(5, 5), results=(6,)),
        Op(kind="scatter", operands=(6, 4), results=(7,)),
    )
    values = (SIZE, small, SIZE, SIZE, small, SIZE, SIZE, SIZE)
    program = of_ops(values, ops, (0, 1), (7,))
    assert hidden(program, flow(program, form_bytes, lambda _: 0), catalogue()["v5e"]) == [2, 0, 1, 3, 4, 5]
    program = of_ops((SIZE,) * 8, ops, (0, 1), (7,))
    assert hidden(program, flow(program, form_bytes, lambda _: 0), catalogue()["v5e"])[0] == 0


def test_without_gathers_the_order_stays() -> None:
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="sort", operands=(0,), results=(2,)),
        Op(kind="dot_general", operands=(1, 2), results=(3,)),
    )
    assert order(*ops, arguments=1) == [0, 1, 2]
