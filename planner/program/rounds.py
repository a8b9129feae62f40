"""One search of a program: rounds of solving, and of learning what the solutions take exactly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from ..solver.prepare import prepare
from ..solver.solution import Solution
from ..solver.solve import solve
from .exact import Exact, exact
from .found import Found, Status
from .named import named_layouts

if TYPE_CHECKING:
    from .program import Program

PER_S = 1e12
"""The program's costs are whole picoseconds: then a proof of optimality is exact."""

ROUNDS = 10
ENOUGH = 1e-3
CLOSE = 0.01
DOUBT = 1.1
"""How far beyond a limit the program has to be infeasible: it counts fused kernels as the whole step has them."""
Choices = list[int]


class Rounds:
    """The solutions of a program so far. ``extra_s`` is what was learnt of each choice beyond its cost.

    ``limit_bytes`` is what the rows of the program are held to now (None: no rows). The program counts less than the
    exact price does, so where a solution does not fit that is lowered by as much; ``too_low`` is known to allow none.
    """

    def __init__(self, program: Program, deadline: float, seed: int, stop: Callable[[], bool] | None, cutoff_s: float):
        self.program = program
        self.deadline, self.seed, self.stop, self.cutoff_s = deadline, seed, stop, cutoff_s
        self.extra_s = [np.zeros(len(node.costs)) for node in program.wiring.nodes]
        self.best: tuple[Exact, Choices] | None = None
        self.bound_s = 0.0
        self.floor_s = 0.0
        self.count = 0
        self.limit_bytes: int | None = None
        self.too_low = 0
        self.least_bytes: int | None = None
        self.infeasible = False

    def run(self) -> Found:
        """Solves without a limit on memory; if what is found does not fit, with it, lowered by what it missed."""
        prepare(self.stop)
        for _ in range(ROUNDS):
            solution = self._solved()
            if solution.choices is None:
                if self._ended() or not self._raise_limit(solution):
                    break
                continue
            if self.bound_s > self.cutoff_s:
                break
            promised_s = solution.cost / PER_S
            choices = self.program.choices(solution.choices)
            took = exact(self.program.wiring, choices, self.program.mesh, self.program.machine)
            fits = self._fits(took, solution)
            if fits and (self.best is None or took.estimate.step_time_s < self.best[0].estimate.step_time_s):
                self.best = (took, choices)
            if self._ended() or (fits and self._agrees(took, promised_s)):
                break
            self._learn(took, choices)
        return self._answer()

    def _solved(self) -> Solution:
        left = max(self.deadline - time.monotonic(), 0.1)
        problem = self.program.problem(self.limit_bytes, self.extra_s)
        found = solve(problem, time_limit_s=left, seed=self.seed, stop=self.stop)
        self.count += 1
        if self.limit_bytes in (None, self.program.limit_bytes) and found.choices is not None:
            self.bound_s = found.bound / PER_S
            self.floor_s = self.floor_s or self.bound_s
        return found

    def _fits(self, took: Exact, solution: Solution) -> bool:
        """Whether a solution fits; if not, the limit that the next is solved with."""
        limit, peak = self.program.limit_bytes, took.estimate.peak_bytes
        self.least_bytes = peak if self.least_bytes is None else min(self.least_bytes, peak)
        if limit is None or peak <= limit:
            return True
        if self.limit_bytes is None:
            self.limit_bytes = limit
        else:
            lowered = min(self.limit_bytes, solution.peak_usage) - (peak - limit)
            self.limit_bytes = max(lowered, (self.too_low + self.limit_bytes) // 2)
        return False

    def _raise_limit(self, solution: Solution) -> bool:
        """Whether there is something left to try where nothing was found under the limit of now."""
        limit = self.program.limit_bytes
        if solution.status != "infeasible" or self.limit_bytes is None or limit is None:
            return False
        if self.limit_bytes >= limit:
            self.infeasible = self.limit_bytes >= limit * DOUBT
            self.limit_bytes = int(limit * DOUBT) + 1
            return not self.infeasible
        self.too_low = self.limit_bytes
        self.limit_bytes = (self.limit_bytes + limit) // 2
        return self.limit_bytes - self.too_low > limit * CLOSE

    def _agrees(self, took: Exact, promised_s: float) -> bool:
        return took.estimate.step_time_s <= promised_s * (1 + ENOUGH)

    def _learn(self, took: Exact, choices: Choices) -> None:
        """Adds what a cluster of nodes takes beyond their costs to the choices that were made, by their shares."""
        nodes = self.program.wiring.nodes
        for members, missed_s in took.missed_s:
            if missed_s <= 0:
                continue
            costs = np.array([nodes[n].costs[choices[n]] for n in members]) + 1e-12
            for number, share in zip(members, costs / costs.sum(), strict=True):
                self.extra_s[number][choices[number]] += share * missed_s

    def _ended(self) -> bool:
        return time.monotonic() > self.deadline or (self.stop is not None and self.stop())

    def _answer(self) -> Found:
        if self.best is None:
            status: Status = "infeasible" if self.infeasible else "unknown"
            least = self.least_bytes or 0
            return Found(status=status, objective_s=math.inf, bound_s=self.bound_s, peak_bytes=least, rounds=self.count)
        took, choices = self.best
        objective_s = took.estimate.step_time_s
        bound_s = min(self.bound_s, objective_s)
        return Found(
            status="optimal" if bound_s >= objective_s * (1 - ENOUGH) else "feasible",
            objective_s=objective_s,
            bound_s=bound_s,
            floor_s=min(self.floor_s, bound_s),
            peak_bytes=took.estimate.peak_bytes,
            layouts=named_layouts(self.program.wiring, choices),
            rounds=self.count,
        )
