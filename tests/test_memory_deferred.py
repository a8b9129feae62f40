"""Products of weights' gradients that wait for the end of a step, on chips that run them beside what is sent."""

from __future__ import annotations

import pytest
from meshwright.planner.catalogue import catalogue
from meshwright.planner.graph import Graph, Op, Value
from meshwright.planner.kernels import Program
from meshwright.planner.kinds import ALL_GATHER, ALL_REDUCE
from meshwright.planner.memory import put_in_order
from programs import of_ops

SIZE = Value((1024, 1024), "f32")


def step(sent: str) -> Program:
    """A product of the head's gradient (2), which an update takes (3), a loop (4), and what is sent after it (5)."""
    body = Graph(values=(SIZE, SIZE), ops=(Op(kind="tanh", operands=(0,), results=(1,)),), arguments=(0,), results=(1,))
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="dot_general", operands=(1, 0), results=(2,)),
        Op(kind="subtract", operands=(0, 2), results=(3,)),
        Op(kind="while", operands=(1,), results=(4,), bodies=(body,)),
        Op(kind=sent, operands=(4,), results=(5,), attributes={"axes": ("x",)}),
    )
    return of_ops((SIZE,) * 6, ops, (0,), (3, 5))


def kinds(program: Program) -> list[str]:
    return [program.graph.ops[kernel.ops[-1]].kind for kernel in program.kernels]


@pytest.mark.parametrize(("chip", "sent", "waits"), [
    ("v5e", ALL_GATHER, True), ("v6e", ALL_GATHER, True), ("v5e", ALL_REDUCE, False), ("v3", ALL_GATHER, False),
    ("v4", ALL_GATHER, False), ("tpu7x", ALL_REDUCE, True), ("v5e", "sort", False), ("v6e", "sort", False),
])  # fmt: skip
def test_a_gradient_waits_for_the_loop_where_more_than_sums_are_sent_after_it(
    chip: str, sent: str, waits: bool
) -> None:
    found = put_in_order(step(sent), catalogue()[chip])
    order = kinds(found.program)
    assert (order.index("dot_general") > order.index("while")) == waits
    assert (order.index("subtract") > order.index("while")) == waits
    assert list(found.bodies) == [order.index("while")]
    assert all(found.flow.maker[v] < point for point, values in enumerate(found.flow.operands) for v in values)


def test_a_gradient_that_devices_add_up_does_not_wait() -> None:
    """The head's gradient of a scanned decoder, bf16[8192,512], is added up before the loop in v6e's programs."""
    body = Graph(values=(SIZE, SIZE), ops=(Op(kind="tanh", operands=(0,), results=(1,)),), arguments=(0,), results=(1,))
    ops = (
        Op(kind="sort", operands=(0,), results=(1,)),
        Op(kind="dot_general", operands=(1, 0), results=(2,)),
        Op(kind=ALL_REDUCE, operands=(2,), results=(3,), attributes={"axes": ("y",)}),
        Op(kind="while", operands=(1,), results=(4,), bodies=(body,)),
        Op(kind=ALL_GATHER, operands=(4,), results=(5,), attributes={"axes": ("x",)}),
    )
    order = kinds(put_in_order(of_ops((SIZE,) * 6, ops, (0,), (3, 5)), catalogue()["v6e"]).program)
    assert order.index("dot_general") < order.index("while")
