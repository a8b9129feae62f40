"""What choices take together, as a problem of nodes and pairs has it: never more than they take, and where some follow
others all of it by few.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.planner.program.solving.company import Company, Pairs, taken_together
from meshwright.planner.program.solving.learnt import Together, holds

NODES, CHOICES = 4, 3

some = st.sets(st.integers(0, CHOICES - 1), min_size=1, max_size=CHOICES - 1).map(lambda each: tuple(sorted(each)))
together = st.dictionaries(st.integers(0, NODES - 1), some, min_size=2).map(lambda each: tuple(sorted(each.items())))
seconds = st.integers(0, 8).map(float)
learnt = st.dictionaries(together, seconds, max_size=3)
tables = st.lists(st.integers(0, 20), min_size=CHOICES**2, max_size=CHOICES**2)
edges = st.dictionaries(
    st.sets(st.integers(0, NODES - 1), min_size=2, max_size=2).map(lambda ends: tuple(sorted(ends))),
    tables.map(lambda each: np.array(each, float).reshape(CHOICES, CHOICES)),
)


def paid(found: list[Company], choices: tuple[int, ...]) -> float:
    return sum(
        min(
            float(cost) + sum(table[choices[node], place] for node, table in each.tables.items())
            for place, cost in enumerate(each.costs)
        )
        for each in found
    )


def taken(costs: dict[int, np.ndarray], pairs: Pairs, choices: tuple[int, ...]) -> float:
    own = sum(float(each[choices[node]]) for node, each in costs.items())
    return own + sum(float(table[choices[a], choices[b]]) for (a, b), table in pairs.items())


@given(learnt, edges)
def test_no_solution_is_charged_more_than_was_learnt_of_it(known: dict[Together, float], before: Pairs) -> None:
    """And one in which all choose as said is charged all of it where that is all that was learnt."""
    costs, pairs = {node: np.zeros(CHOICES) for node in range(NODES)}, dict(before)
    found = taken_together(known, costs, pairs)
    for choices in itertools.product(range(CHOICES), repeat=NODES):
        charged = paid(found, choices) + taken(costs, pairs, choices) - taken({}, before, choices)
        held = [missed_s for each, missed_s in known.items() if holds(each, choices)]
        assert charged <= sum(held) + 1e-9
        if len(held) == len(known) == 1:
            assert charged == pytest.approx(sum(held))


def test_who_cannot_choose_otherwise_alone_follows() -> None:
    """The first two lie alike or pay nine times as much: then the second decides with the third, which does not."""
    costs = {node: np.zeros(2) for node in range(3)}
    pairs: Pairs = {(0, 1): np.array([[0.0, 9.0], [9.0, 0.0]]), (1, 2): np.array([[0.0, 1.0], [1.0, 0.0]])}
    (found,) = taken_together({((0, (0,)), (1, (0,)), (2, (0,))): 1.0}, costs, pairs)
    assert len(found.tables) == 2
    assert 2 in found.tables
    before = {(0, 1): np.array([[0.0, 9.0], [9.0, 0.0]]), (1, 2): pairs[1, 2]}
    for choices in itertools.product(range(2), repeat=3):
        charged = paid([found], choices) + taken(costs, pairs, choices) - taken({}, before, choices)
        assert charged <= float(not any(choices))


def test_what_one_node_decides_for_all_is_a_cost_of_its_own() -> None:
    costs = {node: np.zeros(2) for node in range(2)}
    pairs: Pairs = {(0, 1): np.array([[0.0, 9.0], [9.0, 0.0]])}
    assert not taken_together({((0, (1,)), (1, (1,))): 1.0}, costs, pairs)
    assert sorted(each[1] for each in costs.values()) == [0.0, 1.0]
