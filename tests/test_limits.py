"""The memory limit lowered step by step: every plan is within it, predicted and compiled, until nothing fits."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import meshwright as mw
import pytest
import small_steps
from in_process import search
from meshwright.backends.jax.drafts import Drafts
from meshwright.planner.search.result import SearchResult
from small_steps import Pair
from written_plans import by_hand, drawn

TOPOLOGY, MESH = "v5e:2x4", {"a": 4, "b": 2}
STEPS: dict[str, Callable[[], Pair]] = {
    "products": lambda: small_steps.mlp(8192, 1024, 4096, 1, momentum=True),
    "a loop": lambda: small_steps.scanned(8192, 1024, 2048, 3),
}
SMALLER, MOST = 0.6, 8
TIME_S = 15
SHORT_S = 10  # all of which goes into proving that nothing fits, and into what would

Found = list[tuple[int | None, SearchResult]]


def lowered(pair: Pair) -> Iterator[tuple[int | None, SearchResult]]:
    """Searches under ever lower limits: each is a part of what the plan before it took; the last finds nothing."""
    step, args = pair
    limit: int | None = None
    for _ in range(MOST):
        limits = None if limit is None else {"hbm": limit}
        result = search(step, args, topology=TOPOLOGY, mesh=MESH, limits=limits, time_limit_s=SHORT_S)
        yield limit, result
        if result.estimate is None:
            return
        limit = int(result.estimate.peak_bytes * SMALLER)


@pytest.fixture(scope="module")
def found() -> Callable[[str], Found]:
    """What ``lowered`` finds for a step, searched once."""
    known: dict[str, Found] = {}

    def of(name: str) -> Found:
        if name not in known:
            known[name] = list(lowered(STEPS[name]()))
        return known[name]

    return of


@pytest.mark.parametrize("name", STEPS)
def test_every_plan_is_within_its_limit_until_nothing_is(name: str, found: Callable[[str], Found]) -> None:
    pair = STEPS[name]()
    results = found(name)
    assert len(results) > 1
    for limit, result in results[:-1]:
        assert result.plan is not None
        assert result.estimate is not None
        assert limit is None or result.estimate.peak_bytes <= limit
        priced = mw.estimate(result.plan, *pair)
        assert priced.peak_bytes == result.estimate.peak_bytes
    last, nothing = results[-1]
    assert last is not None
    assert nothing.plan is None
    assert nothing.status in ("infeasible", "unknown")
    least_bytes = None if nothing.misfit is None else nothing.misfit.least_bytes
    assert nothing.status == "unknown" or least_bytes is not None
    assert least_bytes is None or least_bytes > last
    nothing_fits(pair, last)


def test_where_what_is_found_first_does_not_fit_something_else_is_found() -> None:
    """The gradients' sums are one all-reduce, which the program does not know: so they are all there at once."""
    step, args = small_steps.mlp()
    asked = {"topology": "v3:2x2", "mesh": {"a": 2, "b": 4}, "time_limit_s": TIME_S}
    free = search(step, args, **asked)
    assert free.estimate is not None
    limit = int(free.estimate.peak_bytes * 0.93)
    held = search(step, args, **asked, limits={"hbm": limit})
    assert held.estimate is not None
    assert held.estimate.peak_bytes <= limit
    assert held.step_time_s < 1.05 * free.step_time_s


def nothing_fits(pair: Pair, limit: int) -> None:
    """No plan that teams write and none drawn at random is within a limit under which nothing was found."""
    workload = Drafts(*pair)
    topology = mw.loads(f"meshwright: 1\ntopology: {TOPOLOGY}\n").topology
    plans = [*by_hand(workload.tensors, topology, MESH).values(), *drawn(workload.tensors, topology, MESH, 10)]
    assert min(workload.estimate(plan).peak_bytes for plan in plans) > limit


@pytest.mark.tpu_compiler
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
def test_what_is_compiled_is_within_the_limit_too(found: Callable[[str], Found]) -> None:
    step, args = STEPS["products"]()
    for limit, result in found("products"):
        if result.plan is None:
            break
        memory = mw.apply(result.plan, step, args).lower(*args).compile().memory_analysis()
        aliased = memory.output_size_in_bytes - memory.alias_size_in_bytes
        used = memory.argument_size_in_bytes + aliased + memory.temp_size_in_bytes
        assert limit is None or used <= limit
