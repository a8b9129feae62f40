"""Which gathers wait for the update of the weight that they send: those whose rounding is a kernel with it."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER
from meshwright.planner.memory import put_in_order
from meshwright.planner.memory.flow.flow import flow
from meshwright.planner.memory.order.rounded import behind_updates
from meshwright.planner.partition.passes.narrow import SENT_ROUNDED
from programs import form_bytes, of_ops

WIDE, NARROW, FULL = Value((64, 1024), "f32"), Value((64, 1024), "bf16"), Value((1024, 1024), "bf16")


def trained(shape: tuple[int, ...] = WIDE.shape, *, waits: bool = False) -> Program:
    """A weight (0) is rounded (2), gathered forward (3) and backward (4); its gradient (6) needs what the forward pass
    makes (5), and if it ``waits`` what the backward one does (7); its update (8) makes the next value.
    """
    values = (Value(shape, "f32"), FULL, Value(shape, "bf16"), FULL, FULL, FULL, WIDE, FULL, Value(shape, "f32"))
    ops = (
        Op(kind="convert", operands=(0,), results=(2,), attributes=SENT_ROUNDED),
        Op(kind=ALL_GATHER, operands=(2,), results=(3,), attributes={"axes": ("x",)}),
        Op(kind="dot_general", operands=(1, 3), results=(5,)),
        Op(kind=ALL_GATHER, operands=(2,), results=(4,), attributes={"axes": ("x",)}),
        Op(kind="dot_general", operands=(5, 4), results=(7,)),
        Op(kind="dot_general", operands=(5, 7 if waits else 1), results=(6,)),
        Op(kind="subtract", operands=(0, 6), results=(8,)),
    )
    return of_ops(values, ops, (0, 1), (8, 7), aliases={0: 0})


def waiting(program: Program) -> list[int]:
    """The gathers, by what they make, that wait for more than what they send."""
    found = behind_updates(program, flow(program, form_bytes, lambda _: 0), ())
    return [program.kernels[k].writes[0] for k, values in enumerate(found.operands) if k in (1, 3) and len(values) > 1]


@pytest.mark.parametrize("chip", ["v4", "v5e", "v6e"])
def test_the_gather_that_the_update_does_not_need_waits_for_it(chip: str) -> None:
    assert waiting(trained()) == waiting(trained((128, 8, 64))) == [4]
    made = put_in_order(trained(), catalogue()[chip]).program
    order = [kernel.writes[0] for kernel in made.kernels]
    assert order.index(8) < order.index(4)


@pytest.mark.parametrize("program", [trained(waits=True), trained((64, 16, 64))])
def test_no_gather_waits_where_the_update_needs_both_or_a_copy_turns_the_weight(program: Program) -> None:
    assert waiting(program) == []
