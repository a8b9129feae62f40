"""What exact prices teach a program: clusters that make up for each other; nothing is charged more than it took."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from meshwright.planner.program.solving import rounds as searching
from meshwright.planner.program.solving import solutions as finding
from meshwright.planner.program.solving.account import Account
from meshwright.planner.program.solving.by_rows import EFFORT
from meshwright.planner.program.solving.exact import Missed, alone, netted
from meshwright.planner.program.solving.learnt import Learnt
from meshwright.planner.program.solving.rounds import ONCE_MORE, PROOFS, PROVING, Rounds
from meshwright.planner.program.solving.solutions import LARGE, NEAR, PER_S, Priced, Solutions
from small_steps import program_of, shape

NODES, CHOICES = 5, 3


def missed(seconds: float, *nodes: int, read: dict[int, frozenset[int]] | None = None) -> Missed:
    return Missed(nodes=nodes, read=read or {}, seconds=seconds)


def test_clusters_that_share_a_node_make_up_for_each_other() -> None:
    """What the first is said to take is counted in the second: together they take a little more than is said."""
    first = missed(-3.0, 1, 2, read={0: frozenset({0, 1}), 4: frozenset({1})})
    second, third = missed(4.0, 2, 3, read={0: frozenset({1, 2})}), missed(9.0, 5)
    both = missed(1.0, 1, 2, 3, read={0: frozenset({1}), 4: frozenset({1})})
    assert sorted(netted([first, second, third]), key=lambda each: each.seconds) == [both, third]


def test_only_as_many_are_joined_as_it_takes() -> None:
    found = netted([missed(-3.0, 1, 2), missed(4.0, 2, 3), missed(1.0, 2, 4)])
    assert sorted((each.nodes, each.seconds) for each in found) == [((1, 2, 3), 1.0), ((2, 4), 1.0)]


def test_little_that_one_takes_less_joins_no_clusters() -> None:
    """It is taken off what another takes more, which hangs on the nodes of that alone."""
    found = netted([missed(-0.5, 1, 2), missed(4.0, 2, 3)])
    assert sorted((each.nodes, each.seconds) for each in found) == [((1, 2), 0.0), ((2, 3), 3.5)]


def test_what_computes_the_same_makes_up_for_what_another_is_named_after() -> None:
    """Of three that fill as much with a number one kernel is named after all: all together take what is said."""
    fills = [missed(-3.0, 1), missed(-3.0, 2), missed(6.0, 3), missed(2.0, 4)]
    kin = dict.fromkeys((1, 2, 3), frozenset({1, 2, 3}))
    assert {(each.nodes, each.seconds) for each in netted(fills, kin)} == {((4,), 2.0), ((1, 2, 3), 0.0)}
    assert len(netted(fills)) == 4


def test_what_nothing_makes_up_for_stays() -> None:
    alone = [missed(-3.0, 1, 2), missed(4.0, 3)]
    assert sorted(netted(alone), key=lambda each: each.seconds) == alone


def test_what_one_node_has_sent_beyond_all_that_is_said_of_it_hangs_on_what_hands_it_that() -> None:
    """What other nodes of its cluster take less stays with these, and it is told no more than the cluster takes."""
    read = {1: {7: frozenset({0, 1})}}
    several, one = missed(5.0, 1, 2, 3, read={7: frozenset({1})}), missed(4.0, 4)
    found = alone([several, one], {1: 3.0, 2: -1.0, 4: 9.0}, read)
    assert found == [missed(3.0, 1, read=read[1]), replace(several, seconds=2.0), one]
    assert alone([several], {1: 6.0}, read) == [missed(5.0, 1, read=read[1]), replace(several, seconds=0.0)]
    assert alone([replace(several, seconds=-1.0)], {1: 6.0}, read) == [replace(several, seconds=-1.0)]


clusters = st.lists(
    st.builds(
        lambda nodes, seconds: missed(seconds, *sorted(nodes)),
        st.sets(st.integers(0, NODES - 1), min_size=1),
        st.floats(-1, 1, allow_nan=False),
    ),
    max_size=4,
)
solutions = st.lists(st.tuples(st.tuples(*[st.integers(0, CHOICES - 1)] * NODES), clusters), max_size=6)


def learner() -> Learnt:
    return Learnt(leader=np.arange(NODES), guess_s=[np.zeros(CHOICES) for _ in range(NODES)])


@given(solutions)
def test_netting_keeps_the_sum_and_nodes_are_lost_to_none(several: list[tuple[tuple[int, ...], list[Missed]]]) -> None:
    for _, found in several:
        after = netted(found)
        assert math.fsum(each.seconds for each in after) == pytest.approx(math.fsum(each.seconds for each in found))
        assert {n for each in after for n in each.nodes} == {n for each in found for n in each.nodes}


@given(solutions)
def test_what_is_learnt_charges_no_known_solution_more_than_it_took(
    several: list[tuple[tuple[int, ...], list[Missed]]],
) -> None:
    learnt = learner()
    for choices, found in several:
        learnt.learn(found, choices, [np.ones(CHOICES)] * NODES, 0.01)
    for taken, more_s in learnt.known:
        assert learnt.charged_s(taken) <= more_s + 1e-9


def test_what_hangs_on_the_fast_memory_that_others_have_is_guessed_and_proves_nothing() -> None:
    """Of another solution with the same choices it may leave more: only what a cluster takes by itself is charged."""
    learnt, costs = learner(), [np.ones(CHOICES)] * NODES
    assert learnt.learn([Missed(nodes=(0, 1), read={}, seconds=3.0, shared_s=2.0)], (0,) * NODES, costs, 0.01)
    assert list(learnt.missed_s.values()) == [1.0]
    assert sum(guess.sum() for guess in learnt.guess_s) == pytest.approx(3.0)
    assert not learnt.learn([Missed(nodes=(2,), read={}, seconds=2.0, shared_s=2.0)], (1,) * NODES, costs, 0.01)


def test_what_a_solution_did_not_take_is_taken_back_before_what_it_took_itself() -> None:
    learnt, costs = learner(), [np.ones(CHOICES)] * NODES
    learnt.learn([missed(1.0, 0, 1), missed(2.0, 2, 3)], (0, 0, 0, 0, 0), costs, 0.01)
    assert not learnt.corrected
    learnt.learn([missed(1.0, 0, 1), missed(0.5, 4)], (0, 0, 0, 0, 1), costs, 0.01)
    assert learnt.corrected
    assert learnt.charged_s((0, 0, 1, 1, 0)) == 1.0
    assert learnt.charged_s((1, 1, 0, 0, 0)) == pytest.approx(0.5)


def test_what_is_known_already_is_not_charged_again() -> None:
    """The same second, taught by a cluster of fewer nodes: it holds for both solutions, and each took one."""
    learnt, costs = learner(), [np.ones(CHOICES)] * NODES
    assert learnt.learn([missed(1.0, 0, 1)], (0, 0, 0, 0, 0), costs, 0.01)
    assert not learnt.learn([missed(1.0, 0)], (0, 0, 1, 0, 0), costs, 0.01)
    assert learnt.learn([missed(1.0, 0)], (1, 0, 0, 0, 0), costs, 0.01)


def test_what_a_solution_took_more_than_one_that_chose_alike_hangs_on_what_tells_them_apart() -> None:
    """The first took nothing more; so the second does for what it chose otherwise too."""
    learnt, costs = learner(), [np.ones(CHOICES)] * NODES
    learnt.learn([], (0, 0, 0, 0, 0), costs, 0.01)
    assert learnt.learn([missed(1.0, 0, 1)], (0, 0, 2, 0, 0), costs, 0.01)
    assert learnt.missed_s == {((0, (0,)), (1, (0,)), (2, (2,))): 1.0}


def test_a_number_for_each_row_is_of_no_account_beside_the_rows() -> None:
    """A cluster takes as long whatever its layout is, less what its own kernel may take less."""
    rows, sums, weights, bias = (64, 8, 512), (64, 8), (512, 2048), (2048,)
    shapes = [frozenset({rows}), frozenset({sums}), frozenset({rows, sums}), frozenset({weights}), frozenset({bias})]
    account = Account(shapes, [9.0, 0.25, 9.0, 9.0, 0.5], [np.arange(CHOICES)] * NODES)
    found = account.decisive(missed(2.0, 0, 1, read={4: frozenset({0})}))
    assert found == missed(1.75, 0, read={4: frozenset({0})})
    assert account.decisive(missed(2.0, 1, 2, 3, read={4: frozenset({0})})) == missed(1.25, 2, 3)
    alone = missed(2.0, 1)
    assert account.decisive(alone) == alone
    little = missed(0.125, 0, 1)
    assert account.decisive(little) == little


def test_choices_that_tell_only_such_numbers_apart_are_alike() -> None:
    alike = [np.array([0, 0, 2])] * NODES
    learnt = Learnt(
        leader=np.arange(NODES),
        guess_s=[np.zeros(CHOICES) for _ in range(NODES)],
        account=Account([frozenset({(64, 512)})] * NODES, [0.0] * NODES, alike),
    )
    learnt.learn([missed(1.0, 0, 1)], (1, 2, 0, 0, 0), [np.ones(CHOICES)] * NODES, 0.01)
    assert [learnt.charged_s((own, 2, 0, 0, 0)) for own in range(CHOICES)] == [1.0, 1.0, 0.0]


def test_a_proof_is_tried_once_more_where_something_was_taken_back() -> None:
    """What was proven with too much is forgotten: with less what is left may prove as much."""
    bounds, learnt = [0.9, 1.0], learner()
    program = SimpleNamespace(deciders=[0], wiring=SimpleNamespace(nodes=[SimpleNamespace(costs=[0.0], rough={})]))
    took = SimpleNamespace(estimate=SimpleNamespace(step_time_s=1.0))
    known = {"floor_s": 0.5, "credit_s": 0.0, "cutoff_s": math.inf, "limit_bytes": None}
    kept = mock.Mock(program=program, learnt=learnt, bound_s=0.5, **known)
    kept.ended.return_value = False
    kept.solved.side_effect = lambda **_: SimpleNamespace(choices=[0], bound=bounds.pop(0) * PER_S, status="optimal")

    def price(_: list[int]) -> object:
        learnt.corrected, kept.bound_s = learnt.corrected + 1, 0.5
        return took

    kept.price.side_effect = price
    Rounds(kept)._prove(1.0)
    assert kept.bound_s == 1.0


def test_what_the_last_solution_took_back_is_proven_anew() -> None:
    """By what is left of what was learnt: else nothing were proven but what was so before anything was."""
    program = SimpleNamespace(deciders=[0], wiring=SimpleNamespace(nodes=[SimpleNamespace(costs=[0.0], rough={})]))
    known = {"floor_s": 0.5, "best_s": 1.0, "credit_s": 0.0, "cutoff_s": math.inf, "limit_bytes": None}
    learnt, left = learner(), [0.5] * PROOFS[1]
    kept = mock.Mock(program=program, learnt=learnt, bound_s=0.5, **known)
    kept.ended.return_value = False
    kept.solved.return_value = SimpleNamespace(choices=[0], bound=0.9 * PER_S, status="optimal")

    def price(_: list[int]) -> object:
        if left:
            kept.bound_s, learnt.corrected = left.pop(), learnt.corrected + 1
        return SimpleNamespace(estimate=SimpleNamespace(step_time_s=1.0))

    kept.price.side_effect = price
    Rounds(kept)._prove(1.0)
    assert kept.bound_s == 0.9
    assert not left
    assert len(kept.solved.mock_calls) == PROOFS[1] + 1


def unproven(choices: int, bound_s: float) -> mock.Mock:
    """A program of so many choices whose proofs are never completed, and say no more than this bound."""
    nodes = [SimpleNamespace(costs=np.zeros(choices), rough={})]
    program = SimpleNamespace(deciders=[0], wiring=SimpleNamespace(nodes=nodes))
    known = {"floor_s": 0.5, "credit_s": 0.0, "cutoff_s": math.inf, "limit_bytes": None}
    kept = mock.Mock(program=program, learnt=learner(), bound_s=0.5, **known)
    kept.ended.return_value = False
    kept.solved.return_value = SimpleNamespace(choices=None, bound=bound_s * PER_S, status="unknown")
    return kept


def test_a_proof_that_raises_nothing_is_not_tried_again_where_nothing_was_taken_back() -> None:
    kept = unproven(PROVING + 1, 0.4)
    Rounds(kept)._prove(1.0)
    assert len(kept.solved.mock_calls) == 1


@pytest.mark.parametrize(("choices", "efforts"), [(PROVING, [1, ONCE_MORE]), (PROVING + 1, [1])])
def test_a_proof_that_could_not_be_completed_is_tried_once_more_and_harder(choices: int, efforts: list[int]) -> None:
    """Unless there are many choices, which would take long."""
    kept = unproven(choices, 0.6)
    Rounds(kept)._prove(1.0)
    assert [call.kwargs["effort"] for call in kept.solved.mock_calls] == [EFFORT * each for each in efforts]
    assert kept.bound_s == pytest.approx(0.6)


@pytest.mark.parametrize(("nodes", "best_s"), [(LARGE, 0.9988), (LARGE + 1, 0.9996)])
def test_of_a_large_program_the_best_stays_unless_something_is_better_by_a_thousandth(
    nodes: int, best_s: float
) -> None:
    """Its plan is being written by then; of a small one the least is kept."""
    wiring = SimpleNamespace(levels=[], nodes=[SimpleNamespace(costs=np.zeros(1), rough={}, deterred={})] * nodes)
    program = SimpleNamespace(
        wiring=wiring, leader=np.arange(nodes), mesh=None, machine=None, limit_bytes=None, choices=lambda decided: [0]
    )
    took_s = iter([1.01, 0.9996, 0.9991, 0.9988, 1.0])
    heard: list[float] = []
    with (
        mock.patch.object(Account, "of", return_value=None),
        mock.patch.object(finding, "exact", side_effect=lambda *_: priced_at(next(took_s))),
        mock.patch.object(searching, "named_layouts", return_value={}),
    ):
        kept = Solutions(program, math.inf, 0, None, math.inf)
        searched = Rounds(kept)
        for _ in range(5):
            kept.price(np.zeros(nodes, np.int64), learns=False)
            searched._tell(lambda seconds, _: heard.append(seconds))
    assert kept.best_s == best_s
    assert heard == sorted({*heard}, reverse=True)
    assert heard[-1] == best_s


@pytest.mark.parametrize(("less_s", "bound_s"), [(0.0, 10.0), (0.5, 10.0), (1.5, 9.5)])
def test_what_does_not_fit_but_takes_less_than_its_costs_counts_against_the_bound_too(
    less_s: float, bound_s: float
) -> None:
    """Else, of a limit at which nothing is found, the bound would be above what a plan that fits takes."""
    wiring = SimpleNamespace(nodes=[])
    program = SimpleNamespace(wiring=wiring, leader=np.arange(1), limit_bytes=10)
    kept = Solutions(program, math.inf, 0, None, cutoff_s=10.0)
    far_s = 12.0 * NEAR * (1 + 1e-9)
    kept.priced = [Priced([0], 12.0, 20, less_s, 0.0), Priced([1], far_s, 30, 5.0, 0.0)]
    kept.bound_s = kept.floor_s = 11.0
    found = kept.answer()
    assert (found.status, found.bound_s, found.floor_s) == ("unknown", bound_s, bound_s)
    assert found.credit_s == less_s


def priced_at(seconds: float) -> object:
    estimate = SimpleNamespace(step_time_s=seconds, peak_bytes=1)
    return SimpleNamespace(estimate=estimate, least_s=seconds, missed=[], held_bytes={})


def test_what_hangs_on_the_fast_memory_of_a_short_step_is_proven_by_pricing_what_costs_less() -> None:
    """Nothing is fetched for the first kernel: no cost says so, for in another step around it there would be time."""

    def step(params: Any, x: Any) -> Any:
        return (jax.nn.relu(x @ params["wi"]) * (x @ params["wg"])) @ params["wo"]

    params = {"wi": shape(2048, 1024), "wg": shape(2048, 1024), "wo": shape(1024, 2048)}
    program = program_of((step, (params, shape(1024, 2048))), "v5e:2x4", "{a: 4, b: 2}")
    found = program.solve()
    assert found.status == "optimal"
    assert program.promised_s(found.choices) < 0.9 * found.objective_s
