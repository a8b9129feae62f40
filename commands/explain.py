"""``meshwright explain``: where a step's predicted time, memory and communication come from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..dsl.errors import PlanError, problem
from .command import NO, YES, Command
from .plan_file import load, machine_of
from .pricing import estimate_of, name_of, pricing_arguments
from .streams import write_json

if TYPE_CHECKING:
    from ..dsl.plan import Plan
    from ..planner.estimate.figures import Estimate


def run(arguments: argparse.Namespace) -> int:
    """Explains what the plan's step is predicted to take: as tables, as JSON, as a page."""
    plan = load(arguments.plan)
    estimate = estimate_of(plan, arguments.calibration)
    if arguments.html:
        _write_page(plan, estimate, arguments.html)
    if arguments.json:
        write_json("explain", file=plan.file, plan=plan.name, **estimate.as_json())
    else:
        from ..planner.explain.text import headline, notes, tables
        from ..render import show_tables

        show_tables(tables(estimate), notes(estimate), headline(estimate, name_of(plan)), good=estimate.fits)
    return YES if estimate.fits else NO


def _write_page(plan: Plan, estimate: Estimate, path: str) -> None:
    """Writes the page of pictures. Raises ``PlanError`` (MW412) for a file that cannot be written."""
    from ..planner.explain.page.page import page
    from ..planner.network import network

    machine = machine_of(plan)
    if machine is None:
        raise PlanError([problem("MW410")])
    text = page(estimate, network(plan.mesh, machine), name=name_of(plan))
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise PlanError([problem("MW412", path=path, reason=error.strerror or str(error))]) from None


def _arguments(parser: argparse.ArgumentParser) -> None:
    pricing_arguments(parser)
    parser.add_argument("--html", metavar="FILE", help="write one self-contained page with pictures")


COMMAND = Command(
    name="explain",
    summary="where a step's predicted time, memory and communication come from, down to the line that asked",
    arguments=_arguments,
    run=run,
)
