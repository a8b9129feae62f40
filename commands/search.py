"""``meshwright search``: the fastest plan that fits, with a proof of how good it is."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TYPE_CHECKING

from ..dsl.errors import PlanError, Problem, problem, raise_errors
from .command import INFEASIBLE, INTERRUPTED, NOTHING_FOUND, YES, Command, json_option
from .overrides import overridden, set_option
from .plan_file import load, prepare_devices, unwritable
from .streams import write, write_json

if TYPE_CHECKING:
    from ..dsl.plan import Plan
    from ..planner.search.progress import Progress
    from ..planner.search.result import SearchResult

MODEL = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


def run(arguments: argparse.Namespace) -> int:
    """Searches the plan, shows how it goes on, writes what was found."""
    plan = _asked(arguments)
    _refuse_input(arguments)
    from ..backends.jax.training.interrupt import Interrupt
    from ..search_display import SearchDisplay

    with Interrupt() as interrupt, SearchDisplay() as display, redirect_stdout(sys.stderr):
        result = _search(plan, arguments, display, lambda: interrupt.asked, arguments.begin_s)
    _write(result, arguments)
    _show(result, arguments, plan)
    return INTERRUPTED if interrupt.asked else _code(result)


def _search(
    plan: Plan,
    arguments: argparse.Namespace,
    on_progress: Callable[[Progress], None],
    stop: Callable[[], bool],
    begin_s: float,
) -> SearchResult:
    prepare_devices(None)
    from ..backends.jax.search_settings import search_plan

    return search_plan(
        plan,
        mesh=plan.mesh if arguments.mesh else None,
        time_limit_s=arguments.time_limit,
        seed=arguments.seed,
        top_k=arguments.top_k,
        pareto=arguments.pareto,
        exact=arguments.exact,
        ask_compiler=not arguments.no_compiler,
        on_progress=on_progress,
        stop=stop,
        begin_s=begin_s,
    )


def _asked(arguments: argparse.Namespace) -> Plan:
    """The partial plan that the command line asks to complete. Raises ``PlanError`` with all that is wrong."""
    from ..dsl.plan import Mesh, Place, Plan
    from ..planner.search.options import option_problems

    plan, problems = Plan(mesh=Mesh(axes=None)), list[Problem]()
    for part in (_given, overridden):
        try:
            plan = part(plan, arguments)
        except PlanError as error:
            problems += error.problems
    if arguments.output and (reason := unwritable(arguments.output)):
        problems.append(problem("MW062", Place(file=arguments.output), reason=reason))
    problems += option_problems(arguments.time_limit, arguments.seed, arguments.top_k)
    if plan.topology is None and not problems:
        problems.append(problem("MW550", plan.mesh.place))
    raise_errors(problems)
    return plan


def _given(plan: Plan, arguments: argparse.Namespace) -> Plan:
    if _is_model(arguments.subject):
        return replace(plan, model=arguments.subject)
    return load(arguments.subject, lambda sound: _as_asked(sound, arguments))


def _as_asked(plan: Plan, arguments: argparse.Namespace) -> Plan:
    """A plan with what the options say, unless that is wrong, which is told beside."""
    try:
        return overridden(plan, arguments)
    except PlanError:
        return plan


def _is_model(subject: str) -> bool:
    """Whether the argument names a model and not a file. Raises ``PlanError`` where it is neither."""
    if subject == "-" or os.path.exists(subject) or subject.endswith((".yaml", ".yml")):
        return False
    if MODEL.fullmatch(subject):
        return True
    raise PlanError([problem("MW558", what=f"'{subject}'")])


def _refuse_input(arguments: argparse.Namespace) -> None:
    """Raises ``PlanError`` where the answer would be written over the file that was given."""
    given, out = arguments.subject, arguments.output
    if out and os.path.exists(out) and os.path.exists(given) and os.path.samefile(given, out):
        raise PlanError([problem("MW555", path=out)])


def _write(result: SearchResult, arguments: argparse.Namespace) -> None:
    """Writes the plan; with ``-o`` the others beside it: ``plan.2.yaml`` and on."""
    from ..dsl.writer import dump, dumps

    if result.plan is None:
        return
    if arguments.output:
        dump(result.plan, arguments.output)
        stem, suffix = os.path.splitext(arguments.output)
        others = [*result.alternatives, *result.frontier[1:]]
        for number, other in enumerate(others, 2):
            dump(other.plan, f"{stem}.{number}{suffix}")
    elif not arguments.json:
        write(dumps(result.plan))


def _show(result: SearchResult, arguments: argparse.Namespace, plan: Plan) -> None:
    if arguments.json:
        write_json("search", file=plan.file, model=plan.model, **result.as_json())
        return
    from ..planner.search.report import headline, notes, tables
    from ..render import show_tables

    show_tables(tables(result), notes(result), headline(result), good=result.status in ("optimal", "feasible"))


def _code(result: SearchResult) -> int:
    if result.status == "infeasible":
        return INFEASIBLE
    return YES if result.plan is not None else NOTHING_FOUND


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "subject", metavar="MODEL|PLAN", help="package.module:callable, or a plan with holes (a file, or -)"
    )
    parser.add_argument("--topology", metavar="T", help="the machine, such as v3:32x32 (default: the plan's)")
    parser.add_argument("--mesh", metavar="AXES", help="its axes, such as x=4,y=8 or x=auto,y=8 (default: the plan's)")
    set_option(parser)
    parser.add_argument("--limit", metavar="BYTES", help="memory of a device, such as 12GiB (default: the plan's)")
    parser.add_argument("-o", "--out", dest="output", metavar="FILE", help="write the plan there, not to the output")
    parser.add_argument(
        "--time-limit", type=float, default=60.0, metavar="S", help="seconds until the best so far is the answer (60)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is left to chance (0)")
    parser.add_argument("--top-k", type=int, default=1, metavar="K", help="so many plans in all (1)")
    parser.add_argument("--pareto", action="store_true", help="also plans of less memory and more time")
    parser.add_argument("--exact", action="store_true", help="write every layout, not the fewest that give the same")
    parser.add_argument(
        "--no-compiler", action="store_true", help="do not ask the TPU compiler whether a plan near the limit fits"
    )
    json_option(parser)


COMMAND = Command(
    name="search",
    summary="complete a plan: the fastest layout that fits, with a proof of how good it is",
    arguments=_arguments,
    run=run,
)
