"""The solutions of one program that were found and priced so far, and what they taught."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...solver.solution import Solution
from ...solver.solve import solve
from ..rows.usage import Misfit, Row
from .by_rows import EFFORT
from .exact import Exact, exact
from .found import Beyond, Found, RunnerUp, Status
from .learnt import Learnt
from .named import named_layouts

if TYPE_CHECKING:
    from ..program import Program

PER_S = 1e12
"""The program's costs are whole picoseconds: then a proof of optimality is exact."""

ENOUGH = 1e-3
"""What part of a step is no difference."""
LEAST = 1e-5
"""What part of a step something that was missed has to be to be learnt exactly."""
NEAR = 1.05
"""How many times the best a solution may take that counts against the bound."""
CLOSE = 0.01
"""How far from the bound what is found may be: until then it is tried as often as may be. So far go limits too."""
BEYOND = 0.02
"""How much more than the limit a solution may take whose plan may fit: of one of v6e that is written with few lines the
program itself takes 1 % less of a device's memory, since less is handed over.
"""
AROUND, NEAREST = 0.25, 3
"""How much more one may take that is to be written for the same reason, or more time than what fits, and how many such
are told of: few lines had a plan take 19 % less than its layouts (a decoder of two layers on v3), and what fits as a
plan 12 % more time than it should (one that decodes on tpu7x).
"""
LARGE = 125
"""Of a program of more nodes, what is better by no more than ``ENOUGH`` does not take the best's place: the plan of the
best is being written.
"""
LOOKING_HARD = 0.1
"""How hard solutions are looked for (``solver.solve``): costs that leave something out prove little."""
LOOKING = 4_000
"""How many nodes in all are priced whole where solutions are looked for."""
ROUGH = 4
"""How often it is solved anew at most for choices that turn out to be dearer."""
Choices = list[int]


class Priced(NamedTuple):
    """A solution that takes ``seconds`` and ``peak_bytes``, of which the program says ``less_s`` more in some places
    and ``more_s`` less in all.
    """

    choices: Choices
    seconds: float
    peak_bytes: int
    less_s: float
    more_s: float


RUNNERS_UP = 3
"""How many are kept that are next to the best."""


class Solutions:
    """What was found and priced, the best of it, and the bound.

    ``limit_bytes`` is what the rows of the program are held to now (None: no rows), ``doubt`` how far they are trusted.
    ``misfits`` has what each solution taught that did not fit. ``sure`` says that rows are those that
    hold in any order of kernels: for proofs, and for what is tried last, where those doubted most allow nothing.
    ``priced`` has each solution with what it took, and how much less than its costs in some places: others may as well,
    so that counts against the bound (``credit_s``). None that was priced and fits takes less than ``least_s``.
    """

    def __init__(self, program: Program, deadline: float, seed: int, stop: Callable[[], bool] | None, cutoff_s: float):
        self.program = program
        self.deadline, self.seed, self.stop, self.cutoff_s = deadline, seed, stop, cutoff_s
        self.learnt = Learnt.nothing(program.leader, program.wiring)
        self.best: tuple[Exact, Choices] | None = None
        self.priced: list[Priced] = []
        self.bound_s = 0.0
        self.floor_s = 0.0
        self.count = 0
        self.least_s = math.inf
        self.limit_bytes: int | None = None
        self.doubt = 1.0
        self.misfits: dict[tuple[int, ...], Misfit] = {}
        self.least: tuple[int, Choices] | None = None
        self.near: list[tuple[int, float, Choices]] = []
        self.looked_for: list[tuple[float, Choices]] = []
        self.infeasible = False
        self.sure = False

    def solved(
        self,
        *,
        guess: bool,
        rows: Sequence[Row] = (),
        below_s: float = math.inf,
        learnt: Learnt | None = None,
        effort: float = EFFORT,
    ) -> Solution:
        """The program solved with what was ``learnt`` (by default all that was), by guesses of what others miss or with
        what is known exactly alone, with an ``effort`` where that is not to find solutions; the bound of the first that
        has one is kept. For a proof it is solved anew as long as rough choices are made, which are priced then.
        """
        found = self._solved(guess=guess, rows=rows, below_s=below_s, learnt=learnt or self.learnt, effort=effort)
        for _ in range(0 if guess else ROUGH):
            if found.choices is None or self.ended():
                break
            if not self.learnt.price_rough(self.program.wiring, self.program.choices(found.choices)):
                break
            known = found.bound
            found = self._solved(guess=guess, rows=rows, below_s=below_s, learnt=learnt or self.learnt, effort=effort)
            found = found if found.bound >= known else replace(found, bound=known)  # nothing costs less since
        return found

    def _solved(self, *, guess: bool, rows: Sequence[Row], below_s: float, learnt: Learnt, effort: float) -> Solution:
        left = max(self.deadline - time.monotonic(), 0.1)
        make, sure = self.program.problem, self.sure
        problem = make(self.limit_bytes, learnt, guess=guess, doubt=self.doubt, rows=rows, sure=sure)
        bounds = not rows and not (guess and learnt.known) and self.limit_bytes is None
        looks = guess and not rows
        found = solve(
            problem,
            time_limit_s=left,
            seed=self.seed,
            stop=self.stop,
            effort=LOOKING_HARD if looks else effort,
            until_found=looks,
            below=below_s * PER_S,
        )
        self.count += 1
        if bounds and not self.floor_s and found.choices is not None:
            self.floor_s = self.bound_s = found.bound / PER_S
        return found

    def price(self, decided: NDArray[np.int64], *, learns: bool = True) -> Exact:
        """The exact price of a solution, which is kept if it is the best that fits; its rough choices are priced too.
        Where it ``learns`` it is learnt from, and what it takes less than its costs counts against the bound.
        """
        program = self.program
        choices = program.choices(decided)
        self.learnt.price_rough(program.wiring, choices)
        took = exact(program.wiring, choices, program.mesh, program.machine)
        costs = [node.costs for node in program.wiring.nodes]
        seconds = took.estimate.step_time_s
        less_s = -sum(min(each.seconds, 0.0) for each in took.missed)
        if learns:
            before = self.learnt.corrected
            self.learnt.learn(took.missed, choices, costs, LEAST * seconds)
            if self.learnt.corrected > before:
                self.bound_s = self.floor_s  # what was proven since was with too much
            more_s = sum(each.seconds for each in took.missed)
            self.priced.append(Priced(choices, seconds, took.estimate.peak_bytes, less_s, more_s))
        limit, peak = program.limit_bytes, took.estimate.peak_bytes
        self.seen(peak, choices)
        if limit is not None and peak > limit:
            self.misfits[tuple(choices)] = Misfit(peak_bytes=peak, held_bytes=took.held_bytes)
            if peak <= limit * (1 + AROUND):
                self.near.append((peak, seconds, choices))
            return took
        self.least_s = min(self.least_s, took.least_s)
        if learns:
            self.looked_for.append((seconds, choices))
        if seconds < self.best_s * (1 - ENOUGH if len(program.wiring.nodes) > LARGE else 1):
            self.best = (took, choices)
        return took

    def seen(self, peak_bytes: int, choices: Choices) -> None:
        """Keeps the solution of the least peak."""
        if self.least is None or peak_bytes < self.least[0]:
            self.least = peak_bytes, choices

    @property
    def best_s(self) -> float:
        """What the best takes of those that fit; infinite where there is none."""
        return math.inf if self.best is None else self.best[0].estimate.step_time_s

    @property
    def nothing(self) -> Learnt:
        """Nothing learnt."""
        return Learnt(leader=self.program.leader, guess_s=self.learnt.guess_s)

    def is_within(self, took: Exact) -> bool:
        """Whether what was priced is within the limit on memory."""
        limit = self.program.limit_bytes
        return limit is None or took.estimate.peak_bytes <= limit

    @property
    def credit_s(self) -> float:
        """The most that a plan near the best took less than its costs: in some places, or in all with what others
        taught of it; where none fits, near the quickest that does not. Of several solutions that are one plan, the
        program stands for it by what it says least of.
        """
        quickest_s = min((each.seconds for each in self.priced), default=math.inf)
        best_s = quickest_s if self.best is None else self.best_s
        found: dict[tuple[float, int], float] = {}
        for each in self.priced:
            if each.seconds <= best_s * NEAR:
                less_s = max(each.less_s, self.learnt.charged_s(each.choices) - each.more_s)
                plan = each.seconds, each.peak_bytes
                found[plan] = min(less_s, found.get(plan, less_s))
        return max(found.values(), default=0.0)

    def ended(self) -> bool:
        """Whether the time is over, or the search is to stop."""
        return time.monotonic() > self.deadline or self.stopped

    @property
    def stopped(self) -> bool:
        """Whether the search is to stop."""
        return self.stop is not None and self.stop()

    def answer(self) -> Found:
        """The best that fits, with the bound that what was seen leaves."""
        near = tuple(self._near())
        if self.best is None:
            status: Status = "infeasible" if self.infeasible else "unknown"
            least_bytes, least = self.least or (0, None)
            return Found(
                status=status,
                objective_s=math.inf,
                bound_s=min(max(self.bound_s - self.credit_s, 0.0), self.cutoff_s),
                floor_s=min(max(self.floor_s - self.credit_s, 0.0), self.cutoff_s),
                credit_s=self.credit_s,
                peak_bytes=least_bytes,
                least=None if least is None else named_layouts(self.program.wiring, least),
                near=near,
                rounds=self.count,
            )
        took, choices = self.best
        objective_s = took.estimate.step_time_s
        bound_s = max(self.bound_s - self.credit_s, 0.0)
        rounded_s = len(self.program.wiring.nodes) / PER_S
        if bound_s <= objective_s * (1 + ENOUGH) + rounded_s:  # and what prefers small arguments
            bound_s = min(bound_s, objective_s)
        return Found(
            status="optimal" if bound_s >= objective_s * (1 - ENOUGH) else "feasible",
            objective_s=objective_s,
            bound_s=bound_s,
            floor_s=min(max(self.floor_s - self.credit_s, 0.0), bound_s),
            credit_s=self.credit_s,
            peak_bytes=took.estimate.peak_bytes,
            layouts=named_layouts(self.program.wiring, choices),
            near=near,
            runners_up=tuple(self._runners_up(objective_s)),
            rounds=self.count,
            choices=tuple(choices),
        )

    def _runners_up(self, above_s: float) -> Iterator[RunnerUp]:
        """Those next to the best, each of which takes more than the one before. What lies beside one is like it."""
        left = RUNNERS_UP
        for seconds, choices in sorted(self.looked_for, key=lambda each: each[0]):
            if left and seconds > above_s * (1 + ENOUGH):
                above_s, left = seconds, left - 1
                yield RunnerUp(seconds, named_layouts(self.program.wiring, choices))

    def _near(self) -> Iterator[Beyond]:
        """Those that take a little more than the limit and less time than others that take less, but for what fits: its
        plan may take longer. The nearest to the limit come first.
        """
        quickest_s, left = self.best_s * (1 + AROUND), NEAREST
        for peak_bytes, seconds, choices in sorted(self.near, key=lambda each: each[:2]):
            if seconds < quickest_s * (1 - ENOUGH) and left:
                quickest_s, left = seconds, left - 1
                yield Beyond(peak_bytes, seconds, named_layouts(self.program.wiring, choices))


def often(between: tuple[int, int], in_all: int, size: int) -> int:
    """How often something is done, at least and at most, that should be no more than ``in_all`` for its ``size``."""
    least, most = between
    return min(max(in_all // max(size, 1), least), most)
