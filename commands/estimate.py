"""``meshwright estimate``: does it fit, how long is a step, what is communicated; in milliseconds, nothing compiled."""

from __future__ import annotations

import argparse

from .command import NO, YES, Command
from .plan_file import load
from .pricing import estimate_of, name_of, pricing_arguments
from .streams import write_json


def run(arguments: argparse.Namespace) -> int:
    """Predicts what the plan's step takes."""
    plan = load(arguments.plan)
    estimate = estimate_of(plan, arguments.calibration)
    if arguments.json:
        figures = estimate.as_json()
        shown = {key: value for key, value in figures.items() if key not in DETAILS}
        write_json("estimate", file=plan.file, plan=plan.name, **shown)
    else:
        from ..planner.explain.text import headline, notes, short_tables
        from ..render import show_tables

        show_tables(short_tables(estimate), notes(estimate), headline(estimate, name_of(plan)), good=estimate.fits)
    return YES if estimate.fits else NO


DETAILS = ("kernels", "memory", "tensors")
COMMAND = Command(
    name="estimate",
    summary="predict whether a plan fits, how long a step is, what it communicates; nothing is compiled",
    arguments=pricing_arguments,
    run=run,
)
