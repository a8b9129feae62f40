"""What a graph knows of its own operations."""

from dataclasses import replace

import pytest
from meshwright.planner.graph import Graph, Op, Value

VALUE = Value((4,), "f32")
INNER = Graph(values=(VALUE, VALUE), ops=(Op(kind="sine", operands=(0,), results=(1,)),), arguments=(0,), results=(1,))
OPS = (
    Op(kind="add", operands=(0, 0), results=(1,)),
    Op(kind="while", operands=(1,), results=(2,), bodies=(INNER,), trips=3),
    Op(kind="tanh", operands=(2,), results=(3,)),
    Op(kind="add", operands=(3, 0), results=(4,)),
)
GRAPH = Graph(values=(VALUE,) * 5, ops=OPS, arguments=(0,), results=(4,))


def test_operations_are_found_by_kind_in_order_and_loops_are_not_entered() -> None:
    assert GRAPH.kinds == {"add", "while", "tanh"}
    assert GRAPH.of_kind("add") == [OPS[0], OPS[3]]
    assert GRAPH.of_kind("tanh", "add") == [OPS[0], OPS[2], OPS[3]]
    assert GRAPH.of_kind("sine") == []
    assert GRAPH.nesting == (OPS[1],)


def test_a_changed_graph_knows_its_own_operations() -> None:
    assert GRAPH.kinds
    assert replace(GRAPH, ops=OPS[:1]).kinds == {"add"}
    assert replace(GRAPH, ops=OPS[:1]).nesting == ()
    assert replace(GRAPH) == GRAPH


@pytest.mark.parametrize("holds_a_loop", [False, True])
def test_a_turn_that_holds_loops_sends_what_goes_round_for_these(holds_a_loop: bool) -> None:
    sent = Op(kind="collective-permute", operands=(0,), results=(1,), attributes={"axes": ("x",), "around": True})
    number = Value((8,), "f32")
    body = Graph(values=(number,) * 2, ops=(sent,), arguments=(0,), results=(1,))
    loop = Op(kind="while", operands=(1,), results=(2,), bodies=(body,), trips=4)
    turn = Graph(values=(number,) * 3, ops=(sent, loop), arguments=(0,), results=(2,)) if holds_a_loop else body
    assert turn.goes_round == (not holds_a_loop)
    assert not replace(body, ops=(replace(sent, attributes={"axes": ("x",)}),)).goes_round
