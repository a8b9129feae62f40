"""The best solution and bound so far, at any time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .arrays import Ints
from .bound.dual import Dual
from .clock import Clock
from .problem import Problem
from .reduce.pipeline import Reduction
from .rows_used import usage_of, used_by
from .solution import Size, Solution, Stage, Status

RELATIVE_STEP = 1e-9


class Incumbent:
    """Holds what is known of a problem while it is solved; choices are those of the reduced problem (the core).

    Solutions are looked for ``below`` a cost alone.
    """

    def __init__(
        self, *, problem: Problem, clock: Clock, on_stage: Callable[[Stage], None] | None, below: float = np.inf
    ) -> None:
        self.problem = problem
        self.clock = clock
        self.below = math.ceil(below) if problem.whole and math.isfinite(below) else below
        self.cost = np.inf
        self.bound = -np.inf
        self.core_choices: Ints = np.zeros(0, np.int64)
        self._on_stage = on_stage
        self._stages: list[Stage] = []
        self._reduction: Reduction | None = None
        self._whole = problem.whole
        self._scale = _largest(problem)
        self._after = size_of(problem)

    @property
    def step(self) -> float:
        """By how much a better solution is better at least."""
        return 1.0 if self._whole else RELATIVE_STEP * self._scale

    @property
    def ceiling(self) -> float:
        """What a solution has to cost less than to be of use."""
        return min(self.cost, self.below)

    @property
    def closed(self) -> bool:
        """Whether no better solution can exist."""
        return self.is_enough(self.ceiling) or self.bound >= self.ceiling

    def rounded(self, cutoff: float) -> float:
        """What solutions cost at most that cost no more than a cutoff: nothing lies between whole costs."""
        return math.floor(cutoff) if self._whole and math.isfinite(cutoff) else cutoff

    def is_enough(self, cost: float) -> bool:
        """Whether nothing better than this cost can exist."""
        return self.bound > cost - self.step

    def ended(self) -> bool:
        """Whether there is nothing left to prove, or no time."""
        return self.closed or self.clock.over

    def reduced(self, reduction: Reduction) -> None:
        """Takes the core; one without nodes is the solution."""
        core = reduction.problem
        self._reduction = reduction
        if core is not None:
            self._after = size_of(core)
            if core.nodes == 0:
                self.offer(np.zeros(0, np.int64), core.constant_cost)
                self.raise_bound(core.constant_cost)
            self.end_stage("reduce", core)

    def learn(self, dual: Dual) -> None:
        """Takes the bound and the solution of a climb."""
        self.raise_bound(dual.bound)
        self.offer(dual.choices, dual.cost)

    def offer(self, choices: Ints | None, cost: float) -> None:
        """Takes a solution if it is the best."""
        if choices is not None and cost < self.ceiling:
            self.core_choices, self.cost = choices, cost

    def raise_bound(self, bound: float) -> None:
        """Takes a bound if it is the best; between whole costs the next whole number is one too."""
        self.bound = max(self.bound, float(np.ceil(bound)) if self._whole and np.isfinite(bound) else bound)

    def end_stage(self, name: str, left: Problem) -> None:
        """Notes what is known."""
        stage = Stage(
            name=name,
            elapsed_s=self.clock.elapsed_s,
            cost=self.cost,
            bound=self.bound,
            size=size_of(left),
        )
        self._stages.append(stage)
        if self._on_stage:
            self._on_stage(stage)

    def infeasible(self) -> Solution:
        """The answer where no solution exists."""
        self.bound = np.inf
        return self._answer(None, "infeasible")

    def solution(self) -> Solution:
        """The answer."""
        if not np.isfinite(self.cost):
            return self._answer(None, "infeasible" if self.bound == np.inf else "unknown")
        choices = self._reduction.choices(self.core_choices) if self._reduction else self.core_choices
        return self._answer(choices, "optimal" if self.closed else "feasible")

    def _answer(self, choices: Ints | None, status: Status) -> Solution:
        used = None if choices is None else used_by(usage_of(self.problem), choices)
        return Solution(
            choices=choices,
            cost=self.cost,
            bound=self.bound if status != "optimal" else self.cost,
            peak_usage=0 if used is None else int(used.max(initial=0)),
            status=status,
            before=size_of(self.problem),
            after=self._after,
            stages=tuple(self._stages),
        )


def size_of(problem: Problem) -> Size:
    """How large a problem is."""
    return Size(
        nodes=problem.nodes,
        edges=problem.edges,
        choices=len(problem.costs),
        pairs=int(np.isfinite(problem.tables).sum()),
        rows=len(problem.limits),
    )


def _largest(problem: Problem) -> float:
    """The largest finite cost there is, or 1."""
    costs = np.abs(np.concatenate((problem.costs, problem.tables, [problem.constant_cost])))
    return float(costs[np.isfinite(costs)].max()) or 1.0
