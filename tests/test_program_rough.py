"""Choices that send far more than their kernel's best takes: known at the least until a solution makes them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import small_steps
from extent import some
from meshwright.planner.program.pricing import rough
from meshwright.planner.program.pricing.choices import Choice
from meshwright.planner.program.pricing.rough import Worth, saving_too_much, worth
from meshwright.planner.program.program import Program
from small_steps import program_of

STEPS = {
    "blocks": (small_steps.blocks(), "v5e:2x4", "{a: 2, b: 4}"),
    "experts": (small_steps.experts(), "v3:2x2", "{a: 2, b: 4}"),
    "attention": (small_steps.attention(), "v5p:2x2x1", "{a: 2, b: 2}"),
}


@dataclass
class FakeCosts:
    """Prices choices by what they send and compute, and notes which; of products two seconds are known."""

    sent_s: dict[Choice, float]
    computed_s: dict[Choice, float]
    priced: list[Choice]
    is_sending_all = False
    pricing = SimpleNamespace(lies=lambda layout: layout)

    def sent_in_all_s(self, choice: Choice) -> float:
        return self.sent_s[choice]

    def is_passed(self, choice: Choice) -> bool:
        return False

    def deterred_s(self, choice: Choice) -> float:
        return 0.0

    def multiplying_s(self, choice: Choice) -> float:
        return 2.0

    def computing_s(self, choice: Choice) -> float:
        return self.computed_s[choice]

    def seconds(self, choice: Choice) -> float:
        self.priced.append(choice)
        return self.sent_s[choice] + self.computed_s[choice]


def found(*each: tuple[str, float, float]) -> tuple[list[tuple[float, float | None]], list[str]]:
    """What is worth having of choices by how their edge lies, what they send and compute: that and what was priced."""
    named = {Choice(layouts=(((name,),),), asking=(number,)): name for number, (name, _, _) in enumerate(each)}
    sent, computed = ({one: own[at] for one, own in zip(named, each, strict=True)} for at in (1, 2))
    costs: Any = FakeCosts(sent, computed, [])
    answers = worth(costs, list(named), (0,))
    return [(one.seconds, one.roughly) for one in answers], [named[one] for one in costs.priced]


def test_what_sends_far_more_than_the_best_takes_is_known_roughly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Far is more than three times: then what it multiplies counts, what the best computes beyond that as a guess."""
    several = ("a", 40.0, 9.0), ("b", 5.0, 5.0), ("c", 29.0, 1.0), ("d", 31.0, 8.0)
    assert found(*several) == ([(49.0, None), (10.0, None), (30.0, None), (39.0, None)], ["a", "b", "c", "d"])
    monkeypatch.setattr(rough, "FEW", 3)
    assert found(*several) == ([(42.0, 3.0), (10.0, None), (30.0, None), (33.0, 3.0)], ["b", "c"])


@pytest.mark.parametrize(("best_s", "rounding_s", "is_rough"), [(1.4, 5.0, True), (1.6, 5.0, False), (1.4, 3.0, False)])
def test_what_saves_more_than_it_can_is_known_roughly_where_it_is_far_from_the_best(
    best_s: float, rounding_s: float, is_rough: bool
) -> None:
    """Two savings each spare a product what it waits for: of 1 + 9 seconds both leave 3, for the product takes 2."""
    best, other = (Choice(layouts=(((name,),),), asking=()) for name in "ab")
    costs: Any = FakeCosts({best: 1.0, other: 1.0}, {best: best_s, other: 9.0}, [])
    every = [Worth(choice, costs.seconds(choice)) for choice in (best, other)]
    options: Any = SimpleNamespace(savings={7: np.array([0.0, 4.0])}, rounded={8: np.array([0.0, rounding_s])})
    found = [(one.seconds, one.roughly) for one in saving_too_much(costs, every, options)]
    assert found == [(1.0 + best_s, None), (3.0, 7.0) if is_rough else (10.0, None)]


def test_of_choices_whose_edge_lies_alike_the_one_that_takes_least_is_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rough, "FEW", 1)
    least, priced = found(("a", 1.0, 1.0), ("b", 50.0, 9.0), ("b", 51.0, 1.0), ("a", 40.0, 1.0))
    assert least == [(2.0, None), (52.0, None)]
    assert sorted(priced) == ["a", "b", "b"]  # the last takes no less at the least


@pytest.fixture(params=some(list(STEPS), first=1))
def both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Program, Program]:
    """A program with rough choices and one without."""
    pair, topology, mesh = STEPS[request.param]
    monkeypatch.setattr(rough, "FEW", 1)
    monkeypatch.setattr(rough, "FAR", 1.5)
    monkeypatch.setattr(rough, "FAR_SAVING", 0.1)
    some = program_of(pair, topology, mesh)
    monkeypatch.setattr(rough, "FAR", math.inf)
    monkeypatch.setattr(rough, "FAR_SAVING", math.inf)
    return some, program_of(pair, topology, mesh)


def test_rough_choices_cost_no_more_than_they_take_before_and_after_they_are_priced(
    both: tuple[Program, Program],
) -> None:
    some, all_exact = (program.wiring for program in both)
    count = 0
    for level, other in zip(some.levels, all_exact.levels, strict=True):
        for position in level.kernels:
            kernels = (each.program.kernels[position] for each in (level, other))
            strategies, known = some.strategies, some.strategies.of(level.graph, next(kernels))
            exact = all_exact.strategies.of(other.graph, next(kernels)).costs
            assert (known.costs <= exact * (1 + 1e-9)).all()
            others = [choice for choice in range(len(exact)) if choice not in known.rough]
            assert known.costs[others] == pytest.approx(exact[others])
            for choice in known.rough:
                more_s = strategies.exactly_s(level.graph, level.program.kernels[position], choice)
                assert 0 <= more_s <= (exact[choice] - known.costs[choice]) * (1 + 1e-9) + 1e-15
                count += 1
    assert count > 50


def test_what_leaves_a_value_in_another_layout_costs_no_more_than_it_takes(both: tuple[Program, Program]) -> None:
    """Once its rough choices are priced too."""
    some, all_exact = (program.wiring.strategies for program in both)
    level, other = (program.wiring.levels[0] for program in both)
    count = 0
    for position in list(level.kernels)[:40]:
        kernel, same = level.program.kernels[position], other.program.kernels[position]
        known = some.of(level.graph, kernel)
        whole = ((),) * len(level.graph.shape(kernel.writes[0]))
        brought, exact = (
            strategies.brought(each.graph, each.program.kernels[position], kernel.writes[0], whole)
            for strategies, each in ((some, level), (all_exact, other))
        )
        if brought is None or exact is None:
            continue
        for choice in known.rough:
            most_s = known.costs[choice] + some.exactly_s(level.graph, kernel, choice) + brought[0][choice]
            takes_s = all_exact.of(other.graph, same).costs[choice] + exact[0][choice]
            assert most_s <= takes_s * (1 + 1e-9) + 1e-15
            count += 1
    assert count > 20


def test_what_ends_a_product_that_devices_add_up_costs_what_it_takes_by_itself(both: tuple[Program, Program]) -> None:
    """Though it is not known what the product takes: with that nothing is computed that follows its sum."""
    some, all_exact = (program.wiring for program in both)
    count = 0
    for ends, table in some.tables.items():
        made, reader = (some.nodes[end] for end in ends)
        summed = [value for value in made.sums if value in reader.layouts]
        if made.ended is None or not made.rough or not summed:
            continue
        sums = made.sums[summed[0]]
        added = [choice for choice in made.rough if sums[choice] is not None]
        takes, knows = all_exact.tables[ends][added], table[added]
        can_be = np.isfinite(takes)
        assert knows[can_be] == pytest.approx(takes[can_be], rel=1e-6, abs=1e-12)
        count += int(can_be.sum())
    assert count > 20


@pytest.mark.parametrize("step", some(list(STEPS), of=3))
def test_the_best_is_found_and_proven_nearly_as_if_all_were_priced(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = program_of(*STEPS[step]).solve()
    monkeypatch.setattr(rough, "FAR", math.inf)
    other = program_of(*STEPS[step]).solve()
    assert one.objective_s == pytest.approx(other.objective_s, rel=5e-3)
    assert other.bound_s * (1 - 0.025) <= one.bound_s <= other.objective_s * (1 + 1e-6)
