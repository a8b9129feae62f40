"""``meshwright solve``: the cheapest choices of a contest problem, with a proof where there is time for one."""

from __future__ import annotations

import argparse
import json
import math
from typing import TYPE_CHECKING

from ..dsl.errors import PlanError, problem
from .command import INFEASIBLE, INTERRUPTED, NOTHING_FOUND, YES, Command, json_option
from .streams import write_json

if TYPE_CHECKING:
    from ..planner.solver.solution import Solution

LONGEST_S = 10**7


def run(arguments: argparse.Namespace) -> int:
    """Solves a problem and says what it found and what it proved."""
    _check(arguments)
    from ..planner.solver.contest_reader import read_problem

    given = read_problem(arguments.problem)
    from ..backends.jax.training.interrupt import Interrupt
    from ..planner.solver.prepare import prepare
    from ..planner.solver.solve import solve

    with Interrupt() as interrupt:
        prepare(lambda: interrupt.asked)
        solution = solve(
            given,
            time_limit_s=arguments.time_limit,
            seed=arguments.seed,
            bound_only=arguments.bound_only,
            stop=lambda: interrupt.asked,
        )
    if arguments.output and solution.choices is not None:
        _write(arguments.output, given.name, solution)
    _show(arguments, given.name, solution)
    return INTERRUPTED if interrupt.asked else _code(solution, arguments.bound_only)


def _check(arguments: argparse.Namespace) -> None:
    limit, seed = arguments.time_limit, arguments.seed
    wrong = []
    if not (math.isfinite(limit) and 0 < limit <= LONGEST_S):
        wrong.append(
            problem("MW812", option="--time-limit", value=limit, expected=f"seconds above 0, at most {LONGEST_S}")
        )
    if not 0 <= seed < 2**32:
        wrong.append(problem("MW812", option="--seed", value=seed, expected="a whole number from 0 to 4294967295"))
    if wrong:
        raise PlanError(wrong)


def _code(solution: Solution, bound_only: bool) -> int:
    if solution.status == "infeasible":
        return INFEASIBLE
    return YES if solution.choices is not None or bound_only else NOTHING_FOUND


def _write(path: str, name: str, solution: Solution) -> None:
    from ..planner.solver.solution import plain

    choices = [] if solution.choices is None else solution.choices.tolist()
    content = {"name": name, "cost": plain(solution.cost), "status": solution.status, "choices": choices}
    try:
        with open(path, "w", encoding="utf-8") as stream:
            stream.write(json.dumps(content) + "\n")
    except OSError as error:
        raise PlanError([problem("MW813", path=path, reason=error.strerror or str(error))]) from None


def _show(arguments: argparse.Namespace, name: str, solution: Solution) -> None:
    from ..planner.solver.report import as_json, headline, tables

    if arguments.json:
        write_json("solve", file=arguments.problem, name=name, **as_json(solution))
        return
    from ..render import show_tables

    show_tables(tables(solution), (), headline(solution), good=solution.choices is not None)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "problem", metavar="PROBLEM", help="a problem in the contest's JSON; gzip may have compressed it"
    )
    parser.add_argument(
        "--time-limit", type=float, default=60.0, metavar="S", help="seconds until the best so far is the answer (60)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of what is left to chance (0)")
    parser.add_argument("--bound-only", action="store_true", help="reduce and bound, search no further")
    parser.add_argument(
        "-o", "--out", dest="output", metavar="FILE", help="write the choices, one for each node, as JSON"
    )
    json_option(parser)


COMMAND = Command(
    name="solve",
    summary="solve a problem of choices under shared limits, and prove it where there is time",
    arguments=_arguments,
    run=run,
)
