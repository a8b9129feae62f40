"""What was found by a shorter step, of the whole one that it stands for."""

from __future__ import annotations

import time
from dataclasses import replace

from ..estimate.figures import Estimate
from .question import Question
from .result import SearchResult, status_of
from .search import Stamp, stamped


def of_whole(question: Question, found: SearchResult, estimate: Estimate, stamp: Stamp, begin_s: float) -> SearchResult:
    """The result of a question about a whole step, from that of a shorter one and the whole price of its plan.

    Where the plan takes less than the shorter step said, others may as well, and the bounds are lower by that.
    ``begin_s`` is when the search began, in ``time.monotonic``'s seconds.
    """
    if found.plan is None or found.estimate is None:
        return found
    step_s = estimate.step_time_s
    less_s = max(found.estimate.step_time_s - step_s, 0.0)
    bound_s, tried_bound_s = (
        None if bound is None else min(max(bound - less_s, 0.0), step_s)
        for bound in (found.bound_s, found.tried_bound_s)
    )
    status = status_of(step_s, bound_s or 0.0)
    plan = stamped(question, replace(found.plan, result=None), estimate, bound_s or 0.0, status, stamp)
    rows = tuple(
        replace(row, step_time_s=step_s, peak_bytes=estimate.peak_bytes)
        if row.step_time_s == found.estimate.step_time_s
        else replace(row, peak_bytes=None)
        for row in found.candidates
    )
    return replace(
        found,
        plan=plan,
        status=status,
        estimate=estimate,
        bound_s=bound_s,
        tried_bound_s=tried_bound_s,
        candidates=rows,
        search_s=round(time.monotonic() - begin_s, 3),
    )
