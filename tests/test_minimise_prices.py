"""Prices of plans while one is shortened: which is the best, what fewer lines are worth."""

import math
from dataclasses import replace

import pytest
from estimates import small_estimate
from meshwright.planner.minimise.dims import logical_dims
from meshwright.planner.minimise.prices import Priced, Prices
from meshwright.planner.minimise.rules import Writer
from test_minimise import OPEN, ROWS, WHOLE, Chain, tensor


@pytest.mark.parametrize("is_taken", [True, False])
def test_the_best_plan_seen_is_one_that_the_writer_writes(is_taken):
    tensors = [tensor("params/a"), tensor("ops/f/a.0"), tensor("ops/f/b.0")]
    best = ROWS if is_taken else WHOLE
    chain = Chain(tensors, best={"ops/f/a.0": best, "ops/f/b.0": best}, limit_bytes=0)
    layouts = {"params/a": WHOLE, "ops/f/a.0": best, "ops/f/b.0": best}
    fewer = {"params/a": WHOLE, "ops/f/a.0": ROWS}  # needs no more memory, so it ranks first
    dims = logical_dims(chain.graph(OPEN))
    held, other = (Writer(found, OPEN, tensors, dims) for found in (layouts, fewer))
    prices = Prices(chain, held, trials=9, deadline=math.inf, promised_s=1.0)
    prices.of(prices.everything)
    assert prices.prefers(other) == is_taken
    assert prices.best
    assert prices.best.plan == prices.writer.draft_of(prices.best.values)
    assert prices.writer is (other if is_taken else held)


@pytest.mark.parametrize(("fewer_s", "is_worth_it"), [(1.02, True), (1.0202, True), (1.0211, False)])
def test_lines_that_cost_nothing_go_where_more_than_they_are_worth_is_lost_already(fewer_s, is_worth_it):
    tensors = [tensor("ops/f/a.0"), tensor("ops/f/b.0")]
    chain = Chain(tensors, best={})
    writer = Writer({t.path: WHOLE for t in tensors}, OPEN, tensors, logical_dims(chain.graph(OPEN)))
    prices = Prices(chain, writer, trials=9, deadline=math.inf, promised_s=1.0)

    def taking(seconds):
        estimate = replace(small_estimate(), compute_s=seconds, comm_s=0.0)
        return Priced(values=frozenset(), plan=OPEN, estimate=estimate)

    prices.best, prices.least_s = taking(1.0), 1.0
    assert prices.worth(taking(fewer_s), taking(1.02), 4) == is_worth_it
    prices.whole_s = 1.015  # however it came to take more since
    assert prices.worth(taking(1.02), taking(1.02), 1)
    assert not prices.worth(taking(1.0202), taking(1.0202), 1)
    assert prices.worth(taking(1.0039), taking(1.0), 4)
    assert not prices.worth(taking(1.0039), taking(1.0), 3)


@pytest.mark.parametrize(
    ("least_s", "now_s", "fewer_s", "is_worth_it"),
    [(1.0, 1.007, 1.008, True), (1.0, 1.007, 1.0085, False), (1.009, 1.009, 1.0091, False), (1.02, 1.02, 1.0205, True)],
)
def test_fewer_lines_cost_no_more_than_leaves_a_plan_near_what_was_promised(least_s, now_s, fewer_s, is_worth_it):
    """Not where all plans take far more than was promised: then lines count as they do without a promise."""
    tensors = [tensor("ops/f/a.0")]
    chain = Chain(tensors, best={})
    writer = Writer({t.path: WHOLE for t in tensors}, OPEN, tensors, logical_dims(chain.graph(OPEN)))
    prices = Prices(chain, writer, trials=9, deadline=math.inf, promised_s=1.0)
    least, now, fewer = (
        Priced(values=frozenset(), plan=OPEN, estimate=replace(small_estimate(), compute_s=seconds, comm_s=0.0))
        for seconds in (least_s, now_s, fewer_s)
    )
    prices.best, prices.least_s = least, least_s
    assert prices.worth(fewer, now, 9) == is_worth_it


@pytest.mark.parametrize(
    ("proven_s", "fewer_s", "is_worth_it"),
    [(0.995, 1.0035, True), (0.995, 1.0045, False), (0.98, 1.008, True), (1.0, 1.0085, False)],
)
def test_fewer_lines_are_not_worth_a_hundredth_of_what_is_proven(proven_s, fewer_s, is_worth_it):
    """Where what was promised is farther from that, they count as they do where nothing is proven."""
    tensors = [tensor("ops/f/a.0")]
    chain = Chain(tensors, best={})
    writer = Writer({t.path: WHOLE for t in tensors}, OPEN, tensors, logical_dims(chain.graph(OPEN)))
    prices = Prices(chain, writer, trials=9, deadline=math.inf, promised_s=1.0, proven_s=proven_s)
    now, fewer = (
        Priced(values=frozenset(), plan=OPEN, estimate=replace(small_estimate(), compute_s=seconds, comm_s=0.0))
        for seconds in (1.0, fewer_s)
    )
    prices.best, prices.least_s = now, 1.0
    assert prices.worth(fewer, now, 9) == is_worth_it


@pytest.mark.parametrize(("seconds", "over", "passes"), [(1.0249, 0, True), (1.0252, 0, False), (1.0, 1, False)])
def test_a_plan_that_can_be_read_may_take_a_little_more_than_the_one_whose_lines_are_dropped(seconds, over, passes):
    """Held against that plan, whatever all that is annotated takes; never beyond what others need of the memory."""
    tensors = [tensor("ops/f/a.0")]
    chain = Chain(tensors, best={})
    writer = Writer({t.path: WHOLE for t in tensors}, OPEN, tensors, logical_dims(chain.graph(OPEN)))
    prices = Prices(chain, writer, trials=9, deadline=math.inf, promised_s=1.0)
    least, found = (
        Priced(values=frozenset(), plan=OPEN, estimate=replace(small_estimate(), compute_s=took, comm_s=0.0))
        for took in (1.0, seconds)
    )
    assert found.estimate is not None
    limit = found.estimate.peak_bytes - over if over else None
    found = replace(found, estimate=replace(found.estimate, limit_bytes=limit))
    prices.best, prices.whole_s = least, 1.02
    assert prices.will_pass(found) == passes
