"""What loops read laid across that multiply as sums go round: copied for them."""

from __future__ import annotations

import pytest
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import COLLECTIVE_PERMUTE
from meshwright.planner.memory.tensors.across_loops import copied_across
from programs import of_ops

BATCH, PLACES, INNER, OUTER, DEVICES = 2, 256, 1024, 512, 4
BOTH = (0, 1)


def ring(batched: bool) -> Graph:
    """The body of a loop in which a product of rows that it cuts out of 1, and of 2, is added to what goes round."""
    summed = BOTH if batched else (1,)
    said = {"lhs_contracting_dimensions": summed, "rhs_contracting_dimensions": summed}
    part = Value((INNER // DEVICES, OUTER), "f32")
    values = (
        part,
        Value((BATCH, PLACES, INNER), "bf16"),
        Value((BATCH, PLACES, OUTER), "bf16"),
        Value((BATCH, PLACES, INNER // DEVICES), "bf16"),
        part,
        part,
        part,
    )
    ops = (
        Op(kind="dynamic_slice", operands=(1,), results=(3,), attributes={"step": 0}),
        Op(kind="dot_general", operands=(3, 2), results=(4,), attributes=said),
        Op(kind=COLLECTIVE_PERMUTE, operands=(0,), results=(5,), attributes={"axes": ("x",), "around": True}),
        Op(kind="add", operands=(5, 4), results=(6,)),
    )
    return Graph(values=values, ops=ops, arguments=(0, 1, 2), results=(6,))


def gradient(*, padded: bool = False, turned: bool = False, batched: bool = True) -> Program:
    """A weight's gradient of 2, which 1 is padded to, and 3: through the ring, and transposed behind it or not."""
    part = Value((INNER // DEVICES, OUTER), "f32")
    wide, shorter = Value((BATCH, PLACES, INNER), "bf16"), Value((BATCH, PLACES - 1, INNER), "bf16")
    values = (
        part,
        shorter if padded else wide,
        wide,
        Value((BATCH, PLACES, OUTER), "bf16"),
        part,
        part,
        Value((), "bf16"),
    )
    ops = (
        Op(kind="pad", operands=(1, 6), results=(2,)) if padded else Op(kind="tanh", operands=(1,), results=(2,)),
        Op(kind="while", operands=(0, 2, 3), results=(4,), bodies=(ring(batched),), trips=DEVICES),
        Op(kind="transpose", operands=(4,), results=(5,), attributes={"permutation": (1, 0)})
        if turned
        else Op(kind="negate", operands=(4,), results=(5,)),
    )
    return of_ops(values, ops, (0, 1, 3, 6), (5,))


@pytest.mark.parametrize(("turned", "value", "features"), [(False, 2, INNER), (True, 3, OUTER)])
def test_what_makes_the_rows_of_a_gradient_is_copied(turned: bool, value: int, features: int) -> None:
    (copy,) = copied_across(gradient(turned=turned), early=False)
    assert (copy.value, copy.span, copy.num_bytes) == (value, (1, 1), 2 * BATCH * PLACES * features)


def test_what_is_padded_for_the_loop_is_copied_before() -> None:
    (copy,) = copied_across(gradient(padded=True), early=False)
    assert (copy.value, copy.span) == (1, (0, 0))


def test_what_sums_over_places_alone_is_read_as_it_lies() -> None:
    assert not list(copied_across(gradient(batched=False), early=False))
