"""The solver on problems, at several time limits, beside what is published of them.

    python benchmarks/solver.py [--limits 10,60,300] [--cpu] [FILE ...]    default: the planner's own programs

FILEs are instances of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism (google/iopddl). Published:
the contest winner's cost, the best known cost and bound (ti2-group/iopddl_experiments) and the cost of XLA's own solver
(the contest's organisers). "own" in place of a file stands for the programs that the planner builds for some training
steps (``own_programs``), of which nothing is published. What a solution costs and uses is computed here or by the
independent checker. ``--cpu`` counts the limits in CPU seconds, for machines with other work to do.
"""

from __future__ import annotations

import argparse
import functools
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from meshwright.planner.solver.checker import price
from meshwright.planner.solver.contest_reader import problem_of
from meshwright.planner.solver.document import read_document
from meshwright.planner.solver.prepare import prepare
from meshwright.planner.solver.problem import Problem
from meshwright.planner.solver.solution import Solution
from meshwright.planner.solver.solve import solve
from own_programs import own_programs
from rich.console import Console
from rich.table import Table

OWN = "own"
LONG_S = 1e6


@dataclass(frozen=True)
class Published:
    winner: float
    best: float
    bound: float
    xla: float | None = None


PUBLISHED = {
    "A": Published(6.5695e9, 6.5486e9, 6.5138e9, 1.321e10),
    "B": Published(5.3284e5, 5.3284e5, 5.3284e5, 9.902e5),
    "C": Published(8.4102e10, 8.4102e10, 8.2509e10, 4.196e12),
    "D": Published(3.1361e11, 3.094e11, 2.9825e11),
    "G": Published(2.1704e5, 2.1704e5, 2.1693e5, 1.265e6),
    "K": Published(2.2743e9, 2.2426e9, 2.0656e9),
    "L": Published(1.971e9, 1.971e9, 1.9186e9),
    "M": Published(4.9928e10, 4.9928e10, 4.9407e10),
    "N": Published(2.0274e11, 1.9947e11, 1.7294e11),
    "P": Published(6.622e11, 6.622e11, 6.1625e11, 6.518e11),
    "Q": Published(5.2772e11, 5.2678e11, 5.0555e11, 1.996e12),
    "R": Published(3.719e11, 3.5183e11, 3.0452e11),
    "S": Published(1.5346e9, 1.5219e9, 1.5112e9),
    "T": Published(6.829e11, 6.568e11, 5.8569e11),
    "U": Published(2.5693e9, 2.444e9, 2.0189e9),
    "V": Published(2.2134e6, 1.6171e6, 1.6171e6),
}
HEADERS = (
    "problem",
    "limit",
    "cost",
    "bound",
    "gap",
    "status",
    "time",
    "CPU time",
    "of winner",
    "of best",
    "best gap",
    "of XLA",
)


class Subject(NamedTuple):
    """A problem, and how to price a solution without the solver: its cost, and what is wrong with it."""

    name: str
    problem: Problem
    price: Callable[[Sequence[int]], tuple[float, str]]


def subjects(files: Sequence[str]) -> Iterator[Subject]:
    for file in files:
        if file == OWN:
            for name, problem in own_programs():
                yield Subject(name, problem, functools.partial(priced, problem))
        else:
            document = read_document(file)
            yield Subject(document["problem"]["name"], problem_of(document), functools.partial(checked, document))


def checked(document: dict[str, Any], choices: Sequence[int]) -> tuple[float, str]:
    found = price(document, choices)
    return found.cost, "; ".join(found.wrong)


def priced(problem: Problem, choices: Sequence[int]) -> tuple[float, str]:
    """By the definition, entry by entry."""
    total = problem.constant_cost + sum(problem.costs[problem.choice_start[n] + c] for n, c in enumerate(choices))
    for e, (a, b) in enumerate(problem.ends):
        total += problem.tables[problem.table_start[e] + choices[a] * problem.counts[b] + choices[b]]
    used = np.zeros(len(problem.limits), np.int64)
    for p, (begin, end) in enumerate(problem.piece_rows):
        used[begin:end] += problem.usages[problem.usage_start[p] + choices[problem.piece_nodes[p]]]
    return float(total), "beyond a limit" if np.any(used > problem.limits) else ""


def rows(files: Sequence[str], limits: Sequence[float], by_cpu: bool) -> Iterator[tuple[str, ...]]:
    for subject in subjects(files):
        for limit in limits:
            cpu = time.process_time()
            begin = time.monotonic()
            over = functools.partial(_over, cpu + limit) if by_cpu else None
            solution = solve(subject.problem, time_limit_s=LONG_S if by_cpu else limit, stop=over)
            took = time.monotonic() - begin
            yield _row(subject, limit, solution, took, time.process_time() - cpu)
            if solution.status in ("optimal", "infeasible"):
                break


def _over(end_s: float) -> bool:
    return time.process_time() > end_s


def _row(subject: Subject, limit: float, solution: Solution, took: float, cpu: float) -> tuple[str, ...]:
    letter = re.search(r"-([A-Y])$", subject.name)
    known = PUBLISHED.get(letter[1]) if letter else None
    cost, wrong = subject.price(solution.choices.tolist()) if solution.choices is not None else (np.inf, "")
    if cost < solution.bound - 1e-9 * abs(cost):
        wrong += " below its bound"
    found = np.isfinite(cost)
    beside = [f"{cost / other:.4f}" if found and other else "-" for other in _costs(known)]
    beside.insert(2, f"{1 - known.bound / known.best:.3%}" if known else "-")
    return (
        subject.name,
        f"{limit:g} s",
        wrong or (f"{cost:,.0f}" if found else "-"),
        f"{solution.bound:,.0f}",
        f"{solution.gap:.3%}",
        solution.status,
        f"{took:.1f} s",
        f"{cpu:.1f} s",
        *beside,
    )


def _costs(known: Published | None) -> tuple[float | None, ...]:
    return (known.winner, known.best, known.xla) if known else (None, None, None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="contest files, or 'own'")
    parser.add_argument("--limits", default="10,60,300", help="seconds, with commas")
    parser.add_argument("--cpu", action="store_true", help="limits are CPU seconds")
    arguments = parser.parse_args()
    prepare()
    table = Table(*HEADERS)
    limits = [float(limit) for limit in arguments.limits.split(",")]
    for row in rows(arguments.files or [OWN], limits, arguments.cpu):
        table.add_row(*row)
        print("  ".join(row), flush=True)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
