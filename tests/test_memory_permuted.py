"""Products that wait for a permute to run beside."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import COLLECTIVE_PERMUTE
from meshwright.planner.memory import put_in_order
from meshwright.planner.memory.flow.flow import Flow, flow
from meshwright.planner.memory.order.permuted import beside_permutes
from programs import form_bytes, of_ops

SIZE = Value((1024, 1024), "f32")


def step(needed: bool, behind: str = "reverse") -> tuple[Program, Flow]:
    """A gradient (2), which what is permuted (4) may need (3), and what follows the permute (5, 6)."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="dot_general", operands=(1, 1), results=(2,)),
        Op(kind="reverse", operands=(2 if needed else 1,), results=(3,)),
        Op(kind=COLLECTIVE_PERMUTE, operands=(3,), results=(4,), attributes={"axes": ("x",)}),
        Op(kind=behind, operands=(3, 3), results=(5,)),
        Op(kind="reverse", operands=(4,), results=(6,)),
    )
    program = of_ops((SIZE,) * 7, ops, (0,), (2, 5, 6))
    return program, flow(program, form_bytes, lambda _: 0)


@pytest.mark.parametrize(("needed", "behind", "order"), [
    (False, "dot_general", [0, 1, 2, 3, 4, 5]), (True, "add", [0, 1, 2, 3, 4, 5]), (False, "add", [0, 2, 3, 1, 4, 5]),
])  # fmt: skip
def test_a_product_that_nothing_reads_waits_for_a_permute_with_no_other(
    needed: bool, behind: str, order: list[int]
) -> None:
    """Experts' gradients with their updates, f32[32,256,1024], stand so in v6e's programs."""
    assert beside_permutes(*step(needed, behind)) == order


def test_what_needs_a_product_waits_with_it() -> None:
    """v4 computes the gradient by a layer's input, sums it and reduces it while the weight's is on its way."""
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="dot_general", operands=(1, 1), results=(2,)),
        Op(kind="sort", operands=(2,), results=(3,)),
        Op(kind="reverse", operands=(1,), results=(4,)),
        Op(kind=COLLECTIVE_PERMUTE, operands=(4,), results=(5,), attributes={"axes": ("x",)}),
        Op(kind="reverse", operands=(5,), results=(6,)),
    )
    program = of_ops((SIZE,) * 7, ops, (0,), (3, 6))
    assert beside_permutes(program, flow(program, form_bytes, lambda _: 0)) == [0, 3, 4, 1, 2, 5]


@pytest.mark.parametrize(("chip", "waits"), [("v6e", True), ("v4", True), ("v3", False)])
def test_chips_that_hide_what_is_sent_do_so(chip: str, waits: bool) -> None:
    found = put_in_order(step(needed=False)[0], catalogue()[chip]).program
    kinds = [found.graph.ops[kernel.ops[-1]].kind for kernel in found.kernels]
    assert (kinds.index("dot_general") > kinds.index(COLLECTIVE_PERMUTE)) == waits
