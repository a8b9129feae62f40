"""The solver's bound beside the pairwise linear relaxation's (HiGHS, by scipy), both on what the reductions leave.

    python benchmarks/relaxation.py FILE ...

The relaxation has a variable for each choice and each allowed pair, the pairs of an edge add up to its ends' choices,
and rows of usage are added as they are exceeded (at most five times). Its optimum is what message passing with prices
climbs to at best; the solver's last word is its branching's. CPU seconds, of HiGHS also beyond one core.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence

import numpy as np
from meshwright.planner.solver.bound.dual import climb_dual
from meshwright.planner.solver.contest_reader import read_problem
from meshwright.planner.solver.prepare import prepare
from meshwright.planner.solver.problem import Problem
from meshwright.planner.solver.reduce.pipeline import reduce
from meshwright.planner.solver.solve import solve
from rich.console import Console
from rich.table import Table
from scipy.optimize import linprog
from scipy.sparse import coo_array, csr_array, vstack

ROUNDS, SWEEPS = 6, 500
HEADERS = ("problem", "nodes", "pairs", "HiGHS bound", "time", "rows", "climb's", "time", "solver", "cost", "time")


def relaxed(problem: Problem) -> tuple[float, int]:
    """The relaxation's optimum, and how many rows of usage it took."""
    choices, pair = len(problem.costs), np.flatnonzero(np.isfinite(problem.tables))
    edge = np.repeat(np.arange(problem.edges), np.diff(problem.table_start))[pair]
    place = pair - problem.table_start[edge]
    columns = problem.counts[problem.ends[edge, 1]]
    ends = [problem.choice_start[problem.ends[edge, side]] for side in (0, 1)]
    ends = [ends[0] + place // columns, ends[1] + place % columns]
    cost = np.concatenate((problem.costs, problem.tables[pair]))
    equal = [sums(np.repeat(np.arange(problem.nodes), problem.counts), np.arange(choices), problem.nodes, len(cost))]
    for side in (0, 1):
        line, number = np.unique(edge * choices + ends[side], return_inverse=True)
        of_pairs = sums(number, choices + np.arange(len(pair)), len(line), len(cost))
        equal.append(of_pairs - sums(np.arange(len(line)), line % choices, len(line), len(cost)))
    right = np.concatenate((np.ones(problem.nodes), np.zeros(sum(part.shape[0] for part in equal[1:]))))
    use = usage_of_rows(problem, len(cost))
    taken = np.zeros(0, np.int64)
    found = None
    for _ in range(ROUNDS):
        found = linprog(
            cost,
            A_eq=vstack(equal).tocsr(),
            b_eq=right,
            A_ub=use[taken] if len(taken) else None,
            b_ub=problem.limits[taken] if len(taken) else None,
            method="highs",
        )
        if found.x is None:
            return np.inf, len(taken)
        beyond = use @ found.x - problem.limits
        worst = np.argsort(-beyond)[:20]
        worst = worst[beyond[worst] > 1e-6 * problem.limits[worst]]
        if not len(worst):
            break
        taken = np.union1d(taken, worst)
    return found.fun + problem.constant_cost, len(taken)


def sums(row: np.ndarray, column: np.ndarray, rows: int, columns: int) -> csr_array:
    """A matrix of ones."""
    return coo_array((np.ones(len(row)), (row, column)), shape=(rows, columns)).tocsr()


def usage_of_rows(problem: Problem, columns: int) -> csr_array:
    """What each choice uses of each row."""
    row, column, amount = [], [], []
    for piece, node in enumerate(problem.piece_nodes):
        begin, end = problem.piece_rows[piece]
        usage = problem.usages[problem.usage_start[piece] : problem.usage_start[piece + 1]]
        row.append(np.repeat(np.arange(begin, end), len(usage)))
        column.append(np.tile(problem.choice_start[node] + np.arange(len(usage)), end - begin))
        amount.append(np.tile(usage, end - begin))
    none = np.zeros(0, np.int64)
    entries = [np.concatenate([none, *parts]) for parts in (amount, row, column)]
    return coo_array((entries[0], (entries[1], entries[2])), shape=(len(problem.limits), columns)).tocsr()


def rows(files: Sequence[str]) -> Iterator[tuple[str, ...]]:
    for file in files:
        problem = read_problem(file)
        core = reduce(problem).problem
        if core is None or core.nodes == 0:
            continue
        times = [time.process_time()]
        bound, used = relaxed(core)
        times.append(time.process_time())
        dual = climb_dual(core, halt=np.zeros(1, np.bool_), sweeps=SWEEPS)
        times.append(time.process_time())
        solution = solve(problem, time_limit_s=120.0)
        times.append(time.process_time())
        linear, climbed, solved = (f"{took:.1f} s" for took in np.diff(times))
        yield (
            problem.name,
            f"{core.nodes:,}",
            f"{int(np.isfinite(core.tables).sum()):,}",
            f"{bound:,.0f}",
            linear,
            str(used),
            f"{dual.bound:,.0f}",
            climbed,
            solution.status,
            f"{solution.cost:,.0f}",
            solved,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    arguments = parser.parse_args()
    prepare()
    table = Table(*HEADERS)
    for row in rows(arguments.files):
        table.add_row(*row)
        print("  ".join(row), flush=True)
    Console(width=170).print(table)


if __name__ == "__main__":
    main()
