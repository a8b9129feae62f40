"""A plan's estimate, as the commands want it: the model loaded, its output kept from the answer."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING

from ..dsl.errors import PlanError, problem
from .command import plan_and_json
from .plan_file import prepare_devices

if TYPE_CHECKING:
    from ..dsl.plan import Plan
    from ..planner.compute import Calibration
    from ..planner.estimate.figures import Estimate


def estimate_of(plan: Plan, calibration_path: str | None = None) -> Estimate:
    """What the plan's own model is predicted to take. Raises ``PlanError`` with every problem."""
    calibration = _calibration(calibration_path) if calibration_path else None
    prepare_devices(None)
    from ..backends.jax.estimate import estimate
    from ..backends.jax.loading import load_workload, trace_workload

    with redirect_stdout(sys.stderr):
        workload = load_workload(plan)
        trace_workload(plan, workload)  # a step that cannot be traced is a problem at the model's line
        return estimate(plan, workload.step, workload.args, donate_argnums=workload.donated, calibration=calibration)


def pricing_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of a command that prices one plan."""
    plan_and_json(parser)
    parser.add_argument(
        "--calibration",
        metavar="FILE",
        help="price kernels by this table ('meshwright calibrate'), not the shipped one",
    )


def _calibration(path: str) -> Calibration:
    """The calibration in a file. Raises ``PlanError`` (MW001, MW411) where there is none."""
    from ..dsl.text import read_text
    from ..planner.compute import load

    try:
        return load(read_text(path))
    except PlanError:
        raise
    except ValueError as error:
        raise PlanError([problem("MW411", path=path, reason=str(error))]) from None


def name_of(plan: Plan) -> str:
    """What a plan is called in an answer."""
    return plan.name or plan.model or "the plan"
