"""Searches a step of repeated layers by a shorter one, and prices what is found whole."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from ...dsl.errors import PlanError
from ...dsl.plan import Limits, Plan
from ...planner.estimate.figures import Estimate
from ...planner.estimate.limit import memory_limit
from ...planner.search.pool import Lent, Pool
from ...planner.search.question import Question
from ...planner.search.result import SearchResult
from ...planner.search.search import Stamp, is_complete
from ...planner.search.whole import of_whole
from ...planner.search.workload import decided_remat
from .drafts import Drafts
from .short_drafts import ShortDrafts

TURNS = re.compile(r"(?<=^ops/)(.*)/(?:\d+|\[[\d-]+\]|\{[\d,]+\})$")
"""The turns that a pattern of computed values names."""
PRICING_S = 7e-4
"""For each equation of the whole step: what its price takes."""
PRICING = 0.4
"""What part of the time that may be at most."""
LONG = 1000
"""Equations: of a step with fewer the whole is searched in no time."""
LOST = 1.01
"""A plan that takes so many times what the shorter step said is tried with rules for all turns too."""
LOWERINGS = 2
"""How often the shorter step is searched at most, where its plan does not fit the whole one."""


def searched_short(
    question: Question,
    short: ShortDrafts,
    search: Callable[..., SearchResult],
    workers: Pool,
    stamp_of: Callable[[Drafts], Stamp],
    *,
    begin_s: float,
    time_limit_s: float,
) -> SearchResult | None:
    """The result of a question about a step, found by its shorter one and priced whole.

    None where there is none, where the plan does not mean for the whole step what it does for the shorter, or where it
    does not fit: what is left out takes memory too. ``search`` answers a question with a stamp within a time, and
    ``stamp_of`` has a step's.
    """
    whole = question.workload
    if not isinstance(whole, Drafts) or not short.decides_alike(question.plan):
        return None
    length = short.num_equations(decided_remat(question.plan))
    if length < LONG or is_complete(question):
        return None
    pricing_s = min(PRICING_S * length, PRICING * time_limit_s)
    limit, _ = memory_limit(question.machine, question.plan.limits.hbm_bytes)
    first: SearchResult | None = None
    lowered = 0
    try:
        for _ in range(LOWERINGS):
            found = search(
                replace(question, workload=short, plan=_within(question.plan, limit, lowered)),
                stamp_of(short),
                time_limit_s=time_limit_s - pricing_s,
                pool=lambda: Lent(workers),
            )
            if found.plan is None or found.estimate is None:
                return None
            plan = replace(found.plan, limits=question.plan.limits, result=None)
            if not short.lays_all(plan):
                return None
            estimate = whole.estimate(plan, once=True)
            if estimate.step_time_s > LOST * found.estimate.step_time_s:
                plan, estimate = _better(plan, estimate, short, whole)
            first = first or found
            if limit is None or estimate.peak_bytes <= limit:
                proven = replace(found, plan=plan, bound_s=first.bound_s, tried_bound_s=first.tried_bound_s)
                return of_whole(question, proven, estimate, stamp_of(whole), begin_s)
            lowered += estimate.peak_bytes - limit
    except PlanError:
        return None
    return None


def _better(plan: Plan, estimate: Estimate, short: ShortDrafts, whole: Drafts) -> tuple[Plan, Estimate]:
    """The plan, or one whose rules for some turns of a computed value are for all, if that is legal and better.

    Turns are numbered otherwise in the whole step.
    """
    general = (replace(rule, pattern=TURNS.sub(r"\1/*", rule.pattern)) for rule in plan.rules)
    rules = tuple({rule.pattern: rule for rule in reversed(tuple(general))}.values())[::-1]
    other = replace(plan, rules=rules)
    try:
        if other.rules == plan.rules or not short.lays_all(other):
            return plan, estimate
        found = whole.estimate(other, once=True)
    except PlanError:
        return plan, estimate
    return (other, found) if found.step_time_s < estimate.step_time_s else (plan, estimate)


def _within(plan: Plan, limit: int | None, lowered: int) -> Plan:
    """A partial plan under a lower limit: what the shorter step's memory was found to be less by."""
    if limit is None or not lowered:
        return plan
    return replace(plan, limits=Limits(hbm_bytes=max(limit - lowered, 1)))
