"""The solver on contest problems, at several time limits, beside what is published of them.

    python benchmarks/solver.py [--limits 10,60,300] [FILE ...]       default: one problem made up here

FILEs are instances of the ASPLOS/EuroSys 2025 contest on intra-operator parallelism (google/iopddl). Published:
the contest winner's cost, the best known cost and bound (ti2-group/iopddl_experiments) and the cost of XLA's own solver
(the contest's organisers). A solution's cost is the independent checker's.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from meshwright.planner.solver.checker import price
from meshwright.planner.solver.contest_reader import problem_of
from meshwright.planner.solver.contest_writer import document_of
from meshwright.planner.solver.document import read_document
from meshwright.planner.solver.prepare import prepare
from meshwright.planner.solver.problem import Problem, Resource, build
from meshwright.planner.solver.solution import Solution
from meshwright.planner.solver.solve import solve
from rich.console import Console
from rich.table import Table


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


def made_up(nodes: int = 400) -> dict[str, Any]:
    """A long strip of nodes, each beside its next and its seventh, with a limit that binds."""
    random = np.random.default_rng(0)
    ends = [(i, j) for i in range(nodes) for j in (i + 1, i + 7) if j < nodes]
    begins = np.arange(nodes)
    problem: Problem = build(
        name="made up",
        costs=[random.integers(0, 1000, 6).astype(float) for _ in range(nodes)],
        ends=np.array(ends),
        tables=[random.integers(0, 2000, 36).astype(float) for _ in ends],
        resources=[
            Resource(
                intervals=np.stack((begins, begins + 20), axis=1), usages=random.integers(0, 100, 6 * nodes), limit=800
            )
        ],
    )
    return document_of(problem)


def rows(documents: Sequence[dict[str, Any]], limits: Sequence[float]) -> Iterator[tuple[str, ...]]:
    for document in documents:
        for limit in limits:
            cpu = time.process_time()
            begin = time.monotonic()
            solution = solve(problem_of(document), time_limit_s=limit)
            took = time.monotonic() - begin
            yield _row(document, limit, solution, took, time.process_time() - cpu)
            if solution.status == "optimal":
                break


def _row(document: dict[str, Any], limit: float, solution: Solution, took: float, cpu: float) -> tuple[str, ...]:
    name = document["problem"]["name"]
    letter = re.search(r"-([A-Y])$", name)
    known = PUBLISHED.get(letter[1]) if letter else None
    checked = price(document, solution.choices.tolist()) if solution.choices is not None else None
    wrong = "; ".join(checked.wrong) if checked else ""
    beside = [f"{checked.cost / other:.4f}" if checked and other else "-" for other in _costs(known)]
    beside.insert(2, f"{1 - known.bound / known.best:.3%}" if known else "-")
    return (
        name,
        f"{limit:g} s",
        wrong or (f"{checked.cost:,}" if checked else "-"),
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
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--limits", default="10,60,300", help="seconds, with commas")
    arguments = parser.parse_args()
    documents = [read_document(file) for file in arguments.files] or [made_up()]
    prepare()
    table = Table(*HEADERS)
    for row in rows(documents, [float(limit) for limit in arguments.limits.split(",")]):
        table.add_row(*row)
        print("  ".join(row), flush=True)
    Console(width=160).print(table)


if __name__ == "__main__":
    main()
