"""A searched plan at run time: the settings that are best while another one has some value."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from .errors import PlanError, listing, problem, shorten
from .given import plan_given
from .plan import AtRunTime, Place, Plan


def adapt(plan: Plan, **amount: float) -> Plan:
    """The plan with the settings that its table has for an amount, such as ``adapt(plan, capacity_factor=1.3)``.

    It is the entry of the least value that is not below, so that nothing is dropped for want of room; the plan gets
    this value too. All arguments and results of the step lie as before: a step of one entry takes the state of another
    one as it is (Tutel's adaptive parallelism, section 3.2). The plan returned has no table: adapt the one that has.

    Raises ``PlanError`` where the plan has no table of this setting (MW569), or the amount is above all (MW570) or no
    number (MW574).
    """
    if len(amount) != 1:
        raise TypeError(f"adapt takes one amount, such as capacity_factor=1.3, not {len(amount)}")
    ((name, value),) = amount.items()
    plan_given(plan)
    if not _is_number(value):
        raise PlanError([problem("MW574", Place(file=plan.file), name=name, value=shorten(repr(value)))])
    place = plan.result.place if plan.result else Place(file=plan.file)
    table = plan.result.at_run_time if plan.result else ()
    of_it = (one for one in table if isinstance(one.when.get(name), (int, float)))
    entries = sorted(of_it, key=lambda one: one.when[name])
    if not entries:
        known = listing(sorted({by for one in table for by in one.when}))
        has = f"it has one by {known}" if table else "it has no table"
        raise PlanError([problem("MW569", place, name=name, has=has)])
    found = next((one for one in entries if one.when[name] >= value), None)
    if found is None:
        raise PlanError([problem("MW570", place, name=name, most=entries[-1].when[name], value=value)])
    return _adapted(plan, found)


def _is_number(amount: Any) -> bool:
    """Whether it can be compared with numbers: one of NumPy's can too."""
    try:
        return not isinstance(amount, (str, bytes, bool)) and not math.isnan(float(amount))
    except (TypeError, ValueError):
        return False


def _adapted(plan: Plan, entry: AtRunTime) -> Plan:
    result = plan.result
    if result is not None:
        known = result.fingerprint
        result = replace(
            result,
            status="feasible",
            step_time_s=entry.step_time_s,
            bound_s=None,
            gap=None,
            peak_bytes={},
            fingerprint=None if known is None else replace(known, dims={}),
            at_run_time=(),
        )
    return replace(
        plan,
        settings={**plan.settings, **entry.when, **entry.settings},
        rules=tuple(rule for rule in plan.rules if rule.pattern not in entry.without),
        result=result,
    )
