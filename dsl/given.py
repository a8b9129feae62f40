"""What a program gives where a plan is asked for."""

from __future__ import annotations

from typing import Any

from .errors import PlanError, problem, shorten
from .plan import Plan


def plan_given(plan: Any) -> Plan:
    """The plan. Raises ``PlanError`` (MW553) for what is none, such as the name of its file."""
    if isinstance(plan, Plan):
        return plan
    expected = "a Plan, such as meshwright.load('plan.yaml') or the plan of a search"
    raise PlanError([problem("MW553", option="plan", value=shorten(repr(plan)), expected=expected)])
