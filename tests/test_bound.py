"""The bound is one: no plan that a user can write is priced below it, and what is found is as good as any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pytest
import small_steps
from in_process import search
from meshwright.backends.jax.drafts import Drafts
from meshwright.dsl.plan import Plan
from meshwright.planner.search.result import SearchResult
from small_steps import Pair
from written_plans import by_hand, drawn, neighbours

TOPOLOGY, MESH = "v5e:2x4", {"a": 4, "b": 2}
COUNT = 25

STEPS: dict[str, Callable[[], Pair]] = {
    "products": small_steps.mlp,
    "attention": lambda: small_steps.attention(batch=32, length=1024, width=2048, heads=16),
    "experts": small_steps.experts,
    "a loop": lambda: small_steps.scanned(layers=3),
}


@dataclass(frozen=True)
class Searched:
    workload: Drafts
    result: SearchResult

    def price(self, plan: Plan) -> float:
        return self.workload.estimate(plan).step_time_s

    @property
    def bound_s(self) -> float:
        assert self.result.bound_s is not None
        return self.result.bound_s


@pytest.fixture(scope="module", params=STEPS)
def searched(request: Any) -> Searched:
    step, args = STEPS[request.param]()
    result = search(step, args, topology=TOPOLOGY, mesh=MESH, time_limit_s=120)
    assert result.plan is not None
    return Searched(Drafts(step, args), result)


def below(searched: Searched, plans: Iterator[Plan]) -> list[float]:
    """The prices of plans that are below the bound, as parts of it."""
    prices = [searched.price(plan) / searched.bound_s for plan in plans]
    assert prices
    return [price for price in prices if price < 1 - 1e-9]


def test_no_plan_drawn_at_random_is_below_the_bound(searched: Searched) -> None:
    plans = drawn(searched.workload.tensors, searched.result.plan.topology, MESH, COUNT)
    assert below(searched, plans) == []


def test_no_plan_that_teams_write_is_below_the_bound_or_better(searched: Searched) -> None:
    plans = by_hand(searched.workload.tensors, searched.result.plan.topology, MESH)
    assert below(searched, iter(plans.values())) == []
    slower = {name: searched.price(plan) for name, plan in plans.items()}
    assert {name for name, price in slower.items() if price < searched.result.step_time_s * (1 - 1e-9)} == set()


def test_no_neighbour_of_the_plan_is_below_the_bound(searched: Searched) -> None:
    plans = neighbours(searched.result.plan, searched.workload.tensors, COUNT)
    assert below(searched, islice(plans, COUNT)) == []


def test_a_mesh_that_is_searched_is_never_worse_than_one_that_is_given() -> None:
    step, args = small_steps.scanned(layers=2)
    free = search(step, args, topology=TOPOLOGY, time_limit_s=120)
    assert free.step_time_s is not None
    for mesh in ({"a": 8}, MESH):
        given = search(step, args, topology=TOPOLOGY, mesh=mesh, time_limit_s=60)
        assert given.step_time_s is not None
        assert free.step_time_s <= given.step_time_s * (1 + 1e-3)
        assert free.bound_s is not None
        assert free.bound_s <= given.step_time_s * (1 + 1e-9)
