"""A plan's estimate, as the commands want it: the model loaded, its output kept from the answer."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from .plan_file import prepare_devices

if TYPE_CHECKING:
    from ..dsl.plan import Plan
    from ..planner.estimate.figures import Estimate


def estimate_of(plan: Plan) -> Estimate:
    """What the plan's own model is predicted to take. Raises ``PlanError`` with every problem."""
    prepare_devices(None)
    from ..backends.jax.estimate import estimate
    from ..backends.jax.loading import load_workload, trace_workload

    with redirect_stdout(sys.stderr):
        workload = load_workload(plan)
        trace_workload(plan, workload)  # a step that cannot be traced is a problem at the model's line
        return estimate(plan, workload.step, workload.args, donate_argnums=workload.donated)


def name_of(plan: Plan) -> str:
    """What a plan is called in an answer."""
    return plan.name or plan.model or "the plan"
