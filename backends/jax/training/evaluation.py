"""The held-out loss: a workload's ``evaluate`` under the same plan as its step."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ....dsl.errors import PlanError, problem
from ....dsl.plan import Plan
from ....dsl.resolve import resolve
from ..apply import Applied, apply
from ..trace import trace
from ..workload import PyTree, Workload


def apply_evaluation(plan: Plan, workload: Workload, devices: Sequence[Any]) -> Applied | None:
    """``workload.evaluate`` jitted with the plan's shardings; None for a workload without one.

    Called as ``(*state, batch)``; its last result is the metrics. Raises ``PlanError``: MW514 where they hold no loss,
    and all that ``apply`` raises.
    """
    if workload.evaluate is None:
        return None
    evaluate = _as_step(workload, workload.evaluate)
    fast = apply(deciding(plan, evaluate, workload.args), evaluate, workload.args, devices)
    if f"out/{len(workload.args) - 1}/loss" not in {tensor.path for tensor in fast.traced.results}:
        raise PlanError([problem("MW514", plan.places.get("model"), model=plan.model)])
    return fast


def _as_step(workload: Workload, evaluate: Callable[..., Mapping[str, PyTree]]) -> Callable[..., Any]:
    """``evaluate`` with the step's names for its arguments, and its metrics where the step has them."""

    @functools.wraps(evaluate)
    def step(*args: PyTree) -> tuple[PyTree, ...]:
        return (*(() for _ in args[:-1]), evaluate(*args))

    step.__signature__ = inspect.signature(workload.step)  # type: ignore[attr-defined]
    return step


def deciding(plan: Plan, step: Callable[..., Any], args: Sequence[PyTree]) -> Plan:
    """The plan for a function that learns nothing: without rules for what that has not, remat, a search's result."""
    decided_by = resolve(plan, trace(step, args).tensors).rules.values()
    patterns = {rule.pattern for rule in decided_by if rule is not None}
    rules = tuple(rule for rule in plan.rules if rule.pattern in patterns)
    return replace(plan, rules=rules, remat=None, result=None)
