"""The rules of XLA's latency-hiding scheduler, one by one, and that any order is one that nodes can run in."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from meshwright.planner.memory.order.bottom_up import Schedulable, bottom_up

GATHERED = {"g": 1}


def nodes(
    before: list[list[int]],
    takes: list[float],
    starts: dict[int, int] | None = None,
    sent: float = 5.0,
    inside: dict[int, frozenset[str]] | None = None,
) -> Schedulable:
    """Nodes that read what they wait for; those in ``starts`` are sent, one at a time, in ``sent`` seconds."""
    starts = starts or {}
    return Schedulable(
        before=before,
        takes_s=takes,
        reads=[tuple(each) for each in before],
        starts=starts,
        sent_s=dict.fromkeys(starts, sent),
        resource=dict.fromkeys(starts, "g"),
        most=GATHERED,
        inside=inside or {},
    )


def test_what_is_free_keeps_its_order() -> None:
    assert bottom_up(nodes([[], [], [], [0, 1, 2]], [1.0] * 4)) == [0, 1, 2, 3]


def test_what_lets_more_come_is_placed_first_from_the_end() -> None:
    """Node 2 is the last that reads 0 and 1; 3 is later but lets nothing come."""
    assert bottom_up(nodes([[], [], [0, 1], []], [1.0] * 4)) == [0, 1, 3, 2]


def test_of_what_is_beside_a_gather_that_comes_which_takes_its_time() -> None:
    """The gather (1, 2) of what another brought (3, 4) is under way for 5 s: node 6 takes as long, 5 and 7 do not."""
    before = [[], [0], [1], [2], [3], [], [], [], [4]]
    made = bottom_up(nodes(before, [1, 0, 0, 0, 0, 9, 5, 1, 1], {2: 1, 4: 3}))
    assert made[-4:] == [3, 6, 4, 8]


def test_one_gather_is_under_way_at_a_time_and_loops_that_gather_wait() -> None:
    before = [[], [0], [], [2], [], [1, 3, 4]]
    free = bottom_up(nodes(before, [0, 0, 0, 0, 1, 1], {1: 0, 3: 2}))
    assert free.index(1) < free.index(2) or free.index(3) < free.index(0)
    assert free.index(2) < free.index(4) < free.index(3)
    looped = bottom_up(nodes(before, [0, 0, 0, 0, 1, 1], {1: 0, 3: 2}, inside={4: frozenset({"g"})}))
    assert not looped.index(2) < looped.index(4) < looped.index(3)


@given(st.lists(st.tuples(st.sets(st.integers(0, 30), max_size=3), st.floats(0, 9), st.booleans()), max_size=25))
@settings(max_examples=60, deadline=None)
def test_each_node_stands_behind_all_that_it_waits_for(drawn: list[tuple[set[int], float, bool]]) -> None:
    before: list[list[int]] = []
    takes, starts = list[float](), dict[int, int]()
    for needed, took, is_sent in drawn:
        before.append(sorted(node for node in needed if node < len(before)))
        takes.append(took)
        if is_sent:
            starts[len(before)] = len(before) - 1
            before.append([len(before) - 1])
            takes.append(0.0)
    for start in starts.values():
        before = [[n for n in each if n != start or starts.get(node) == start] for node, each in enumerate(before)]
    made = bottom_up(nodes(before, takes, starts))
    at = {node: place for place, node in enumerate(made)}
    assert sorted(made) == list(range(len(before)))
    assert all(at[earlier] < at[node] for node, each in enumerate(before) for earlier in each)
