"""``meshwright explain``: where a step's predicted time, memory and communication come from, and why a plan is so."""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..dsl.errors import PlanError, problem
from .command import INFEASIBLE, INTERRUPTED, NO, NOTHING_FOUND, YES, Command
from .plan_file import load, machine_of, prepare_devices, prepare_solver
from .pricing import estimate_of, name_of, pricing_arguments
from .streams import write_json

if TYPE_CHECKING:
    from ..backends.jax.reasons import Why
    from ..backends.jax.training.interrupt import Interrupt
    from ..backends.jax.workload import Workload
    from ..dsl.plan import Plan
    from ..planner.estimate.figures import Estimate
    from ..planner.explain.reasons import Reason


def run(arguments: argparse.Namespace) -> int:
    """Explains what the plan's step is predicted to take, or what forcing something else would cost."""
    plan = load(arguments.plan)
    if arguments.why:
        return _run_why(plan, arguments)
    estimate = estimate_of(plan, arguments.calibration)
    if arguments.html:
        _write_page(plan, estimate, arguments.html)
    asked = plan.result is not None or arguments.reasons
    reasons = _reasons(plan, arguments) if asked and not arguments.calibration else []
    if arguments.json:
        _write_json(plan, estimate, reasons)
    else:
        _show(plan, estimate, reasons)
    return YES if estimate.fits else NO


def _write_json(plan: Plan, estimate: Estimate, reasons: list[Reason]) -> None:
    from ..planner.explain.reason_table import reasons_json

    said: dict[str, Any] = {"reasons": reasons_json(reasons, estimate)} if reasons else {}
    write_json("explain", file=plan.file, plan=plan.name, **estimate.as_json(), **said)


def _show(plan: Plan, estimate: Estimate, reasons: list[Reason]) -> None:
    from ..planner.explain.reason_table import reason_table
    from ..planner.explain.text import headline, notes, tables
    from ..render import show_tables

    shown = [*tables(estimate), *([reason_table(reasons, estimate)] if reasons else [])]
    show_tables(shown, notes(estimate), headline(estimate, name_of(plan)), good=estimate.fits)


def _reasons(plan: Plan, arguments: argparse.Namespace) -> list[Reason]:
    """The reasons of the plan's choices: as many as the time, or the user's patience, allows."""
    from ..backends.jax.reasons import reasons
    from ..backends.jax.training.interrupt import Interrupt

    with Interrupt() as interrupt, redirect_stdout(sys.stderr):
        workload = _workload(plan)
        return reasons(
            plan,
            workload.step,
            workload.args,
            donate_argnums=workload.donated,
            time_limit_s=arguments.time_limit,
            stop=lambda: interrupt.asked,
        )


def _run_why(plan: Plan, arguments: argparse.Namespace) -> int:
    """Solves again with something forced and says what it costs, and where."""
    from ..backends.jax.training.interrupt import Interrupt

    if arguments.html or arguments.calibration:
        option = "--html" if arguments.html else "--calibration"
        raise PlanError([problem("MW564", option=option)])
    with Interrupt() as interrupt:
        found = _why(plan, arguments, interrupt)
    if arguments.json:
        write_json("explain", file=plan.file, plan=plan.name, why=found.as_json())
    else:
        from ..planner.explain.why_text import headline, tables
        from ..planner.search.report import notes
        from ..render import show_tables

        good = found.solved.plan is not None
        show_tables(tables(found), notes(found.solved), headline(found), good=good)
    if interrupt.asked:
        return INTERRUPTED
    return {"infeasible": INFEASIBLE, "unknown": NOTHING_FOUND}.get(found.solved.status, YES)


def _why(plan: Plan, arguments: argparse.Namespace, interrupt: Interrupt) -> Why:
    from ..backends.jax.reasons import why
    from ..search_display import SearchDisplay

    with SearchDisplay() as display, redirect_stdout(sys.stderr):
        prepare_solver(lambda: interrupt.asked)
        workload = _workload(plan)
        return why(
            plan,
            workload.step,
            workload.args,
            arguments.why,
            donate_argnums=workload.donated,
            time_limit_s=arguments.time_limit,
            on_progress=display,
            stop=lambda: interrupt.asked,
        )


def _workload(plan: Plan) -> Workload:
    prepare_devices(None)
    from ..backends.jax.loading import load_workload, trace_workload

    workload = load_workload(plan)
    trace_workload(plan, workload)  # a step that cannot be traced is a problem at the model's line
    return workload


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
    parser.add_argument(
        "--why",
        action="append",
        metavar="TENSOR=ASSIGNMENT",
        help="solve again with this forced and say what it costs, and where; may be repeated",
    )
    parser.add_argument(
        "--reasons", action="store_true", help="what else each line could say, priced (a searched plan's always are)"
    )
    parser.add_argument(
        "--time-limit", type=float, default=60.0, metavar="S", help="seconds for reasons, and for --why's search (60)"
    )


COMMAND = Command(
    name="explain",
    summary="where a step's predicted time, memory and communication come from, and the reason of each choice",
    arguments=_arguments,
    run=run,
)
