"""Which choices leave what handing a value on takes as it is."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from meshwright.planner.graph import Sharding
from meshwright.planner.partition.layout import extends
from meshwright.planner.program.wiring.handing import Handing, handing
from meshwright.planner.program.wiring.reading import _put_brought, _turned_back
from meshwright.planner.program.wiring.wires import Node, Port, Wiring

ROWS: Sharding = (("x",), ())
COLUMNS: Sharding = ((), ("x",))
WHOLE: Sharding = ((), ())
LAYOUTS = [ROWS, COLUMNS, WHOLE, ROWS]
"""Of these two are the same."""


def wiring(table: list[list[float]]) -> Wiring:
    """Two nodes, the second of which is handed a value by the first."""
    found = Wiring(reshards=mock.Mock(), strategies=mock.Mock())
    ports = []
    for layouts in (LAYOUTS[: len(table)], LAYOUTS[: len(table[0])]):
        node = found.node(Node(level=0, costs=np.zeros(len(layouts)), layouts={0: layouts}, stems="kernel"))
        ports.append(Port(node, tuple(layouts)))
    source, target = ports
    found.hand_on(source, target, np.array(table))
    return found


@pytest.mark.parametrize(
    ("chosen", "own", "theirs"),
    [
        ((0, 2), {0, 1, 3}, {2}),  # as much is sent from where it lies otherwise
        ((0, 0), {0, 3}, {0}),  # nothing is sent, so how it lies matters
        ((2, 1), {2}, {1}),
    ],
)
def test_what_is_sent_takes_as_long_from_wherever_as_much_is_sent(
    chosen: tuple[int, int], own: set[int], theirs: set[int]
) -> None:
    found = wiring([[0.0, 2.0, 1.0], [2.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.0, 3.0, 1.0]])
    assert list(handing(found, chosen)) == [Handing(1, 0, frozenset(own)), Handing(1, 1, frozenset(theirs))]


def test_choices_that_lie_the_same_are_the_same_step_where_they_take_as_long() -> None:
    found = wiring([[0.0, 2.0, 1.0, 0.0], [2.0, 0.0, 1.0, 4.0]])
    assert list(handing(found, (0, 0)))[1].same == {0, 3}
    assert list(handing(found, (1, 0)))[1].same == {0}


def both(**known: object) -> tuple[Wiring, Port, Port]:
    """One node that makes a value in two layouts, and one that reads it in them; what is known of either."""
    found, layouts = Wiring(reshards=mock.Mock(extends=extends), strategies=mock.Mock()), [ROWS, WHOLE]
    nodes = (Node(level=0, costs=np.zeros(2), layouts={0: layouts}, stems="kernel", **known) for _ in range(2))
    source, target = (Port(found.node(node), (ROWS, WHOLE)) for node in nodes)
    return found, source, target


def test_who_puts_what_was_brought_there_into_a_stack_runs_by_itself() -> None:
    """But not where what it puts there is only cut."""
    wires, made, reader = both(apart=np.array([5.0, 7.0]))
    _put_brought(wires, made, reader)
    assert wires.tables[made.node, reader.node].tolist() == [[0.0, 7.0], [0.0, 0.0]]


def test_who_computes_in_passing_does_not() -> None:
    wires, made, reader = both(apart=np.array([5.0, 7.0]), in_passing=True)
    _put_brought(wires, made, reader)
    assert not wires.tables


def test_rows_that_were_scattered_are_turned_back_where_a_part_is_cut_out_of_them() -> None:
    """As much as the scatter was spared for what it was given as it lies."""
    wires, made, reader = both(tables={3: np.array([-4.0, 2.0])})
    more = _turned_back(wires, 0, made, reader)
    assert more is not None
    assert more.tolist() == [[0.0, 4.0], [0.0, 0.0]]
    wires, made, reader = both(tables={3: np.array([1.0, 2.0])})
    assert _turned_back(wires, 0, made, reader) is None
