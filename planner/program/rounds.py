"""One search of a program: rounds of solving, and of learning what the solutions take exactly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..solver.every import every
from ..solver.prepare import prepare
from ..solver.solution import Solution
from ..solver.solve import solve
from .exact import Exact, exact
from .found import Found, Status
from .learnt import Learnt
from .lowering import Lowering
from .lowest import EFFORT, least_by_rows, looks
from .named import named_layouts
from .usage import Misfit, Row, misfit_row
from .ways import open_ways

if TYPE_CHECKING:
    from .program import Program

PER_S = 1e12
"""The program's costs are whole picoseconds: then a proof of optimality is exact."""

ROUNDS, LOOKING = (2, 10), 4_000
"""How often solutions are looked for, at least and at most, and so many nodes in all: each is priced whole."""
WAYS, EVERY = 50_000, 2_500
"""Of no more ways to choose all are looked at, and all that may fit are priced if they have so few nodes together."""
BESIDE, LEAST_BESIDE = 1_000, 8
"""Of so many nodes in all solutions beside the best are priced whole, where that makes some of them."""
PROOFS, PROVING = (0, 12), 6_000
"""How often it is tried to prove a solution, at least and at most, and so many choices in all, once it is ``CLOSE``."""
STALLED = (1, 12)
"""How many proofs one after the other that neither raise the bound nor find anything better end it, at least and at
most, of twice the choices in all.
"""
MENDING, MENDED = (4, 24), 6
"""How often a solution is looked for beside those that did not fit, at least and at most, and how often while none
takes less memory than others did.
"""
LOWERED, STARTS, PART = 2.0, 2, 0.5
"""How many times the limit what did not fit may have taken to be changed until it does, how many solutions are, and in
what part of the time that is left.
"""
ENOUGH = 1e-3
LEAST = 1e-5
"""What part of a step something that was missed has to be to be learnt exactly."""
CLOSE = 0.01
"""How far from the bound what is found may be: until then it is tried as often as may be. So far go limits too."""
NEAR = 1.05
DOUBT = 1.05
"""How many times the temporaries that there are the program may count: its kernels are those of the whole step."""
Choices = list[int]


class Rounds:
    """The solutions of a program so far, and what they taught.

    ``limit_bytes`` is what the rows of the program are held to now (None: no rows), ``doubt`` how far they are trusted.
    The program counts less than the exact price does, so where a solution does not fit that is lowered by as much;
    ``too_low`` is known to allow none.
    ``misfits`` has what each solution taught that did not fit.
    ``priced`` has each solution with what it took, and how much less than its costs in some places: others may as well,
    so that counts against the bound.
    """

    def __init__(self, program: Program, deadline: float, seed: int, stop: Callable[[], bool] | None, cutoff_s: float):
        self.program = program
        self.deadline, self.seed, self.stop, self.cutoff_s = deadline, seed, stop, cutoff_s
        self.learnt = Learnt.nothing(program.leader, program.wiring.nodes)
        self.best: tuple[Exact, Choices] | None = None
        self.priced: list[tuple[Choices, float, float, float]] = []
        self.bound_s = 0.0
        self.floor_s = 0.0
        self.count = 0
        self.limit_bytes: int | None = None
        self.doubt = 1.0
        self.misfits: dict[tuple[int, ...], Misfit] = {}
        self.too_low = 0
        self.least: tuple[int, Choices] | None = None
        self.infeasible = False
        self.lowered = False

    def run(self) -> Found:
        """Solves without a limit on memory; if what is found does not fit, with it and with rows of what did not fit,
        and if that finds none, lowered by what it missed; then changes what did not fit until it does.

        Solutions are looked for by guesses of what others miss; then what is known exactly proves how good they are.
        """
        known = self._price_every()
        if known is not None:
            return known
        prepare(self.stop)
        mended = False
        for _ in range(_often(ROUNDS, LOOKING, len(self.program.deciders))):
            limited = self.limit_bytes is not None
            solution = self._solved(guess=True)
            if self._open_ways(solution):
                again = self._solved(guess=True)
                solution = solution if again.choices is None else again  # where the time ended
            if solution.choices is None:
                if self._ended() or not self._raise_limit(solution):
                    break
                continue
            if self.floor_s > self.cutoff_s:
                break
            took = self._priced(solution.choices)
            fits = self._fits(took, solution)
            if limited and self.best is None and not mended:
                mended = True
                if self._mend():
                    break
            if self._ended() or (fits and took.estimate.step_time_s <= solution.cost / PER_S * (1 + ENOUGH)):
                break
        if self.best is None and self.misfits and not self.infeasible:
            self._lower()
        if self.best is not None:
            self._prove(self.best[0].estimate.step_time_s)
            self._look_beside()
        return self._answer()

    def _open_ways(self, solution: Solution) -> bool:
        """Whether the program has more choices where a solution pays the same more than once: what was priced before
        is no measure of its costs then, and guesses bound nothing.
        """
        program, decided = self.program, solution.choices
        if decided is None or not open_ways(
            program.wiring, program.leader, program.choices(decided), solution.cost / PER_S
        ):
            return False
        self.learnt.widen(program.wiring.nodes)
        self.bound_s = self.floor_s = 0.0
        self.priced.clear()
        if self.learnt.known:
            self._solved(guess=False, learnt=self._nothing)
        return True

    def _price_every(self) -> Found | None:
        """Prices all solutions, where that is little work; None where it is not, or the time ended."""
        program = self.program
        problem = program.problem(program.limit_bytes, self.learnt, guess=False, doubt=DOUBT)
        found = every(problem, WAYS)
        if found is None or len(found[0]) * len(program.wiring.nodes) > EVERY:
            return None
        for decided in found[0]:
            if self._ended():
                return None
            self._priced(decided)
        self.count, self.infeasible = 1, self.best is None
        if self.best is None:
            return self._answer()
        least_s = self.best[0].estimate.step_time_s
        credit_s = max(float(found[1][0]) / PER_S - least_s, 0.0)
        return replace(self._answer(), bound_s=least_s, floor_s=least_s, credit_s=credit_s, status="optimal")

    def _mend(self) -> bool:
        """Solves with rows of what did not fit; whether anything fits then."""
        limit, lowered = self.program.limit_bytes, self.limit_bytes
        if limit is None:
            return False
        self.limit_bytes = limit
        wiring, hopeful, stalled = self.program.wiring, False, 0
        for _ in range(_often(MENDING, LOOKING // 2, len(self.program.deciders))):
            if self._ended() or stalled >= MENDED:
                break
            known, least = len(self.misfits), self.least
            rows = [misfit_row(wiring, own, each, limit, hopeful=hopeful) for own, each in self.misfits.items()]
            solution = self._solved(guess=True, rows=rows)
            if solution.choices is not None and self._is_within(self._priced(solution.choices)):
                break
            stalled = stalled + 1 if self.least is least else 0
            if len(self.misfits) == known:
                if hopeful:
                    break
                hopeful = True
        if self.best is None:
            self.limit_bytes = lowered
        return self.best is not None

    def _lower(self) -> None:
        """Changes what takes least by the rows, and what came nearest to the limit, choice by choice until it fits,
        then until nothing beside it that fits takes less time.
        """
        self.lowered = True
        limit, begin, deciders = self.program.limit_bytes or 0, time.monotonic(), self.program.deciders
        until = begin + PART * (self.deadline - begin)
        descent = self.program.lowering(looks(len(deciders)), lambda: self._ended() or time.monotonic() > until)
        peaks = {each: misfit.peak_bytes for each, misfit in self.misfits.items()}
        near = sorted((each for each in peaks if peaks[each] <= LOWERED * limit), key=peaks.__getitem__)
        several = [np.array(each, np.int64)[deciders] for each in near[: STARTS - 1]]
        least = least_by_rows(
            self.program, (self.too_low, limit), self._nothing, deadline=self.deadline, seed=self.seed, stop=self.stop
        )
        if least is not None:
            several.insert(0, least)
        for number, start in enumerate(several):
            fits = descent.into(start, 1 / (len(several) - number))
            while fits is not None:
                self._priced(fits)
                fits = self._quicker(descent, fits)
        if descent.least is not None:
            peak, decided = descent.least
            self._seen(peak, self.program.choices(decided))

    def _quicker(self, descent: Lowering, fits: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """What takes less time than a solution that fits, and is beside it."""
        for other in descent.quicker(fits):
            before = self.best
            self._priced(other)
            if self.best is not before:
                return other
        return None

    def _prove(self, best_s: float) -> None:
        """Solves with what was learnt exactly, until nothing cheaper can be or nothing more is learnt."""
        self.limit_bytes = self.program.limit_bytes if self.limit_bytes is not None else None
        size = sum(len(self.program.wiring.nodes[node].costs) for node in self.program.deciders)
        often, patience = _often(PROOFS, PROVING, size), _often(STALLED, 2 * PROVING, size)
        patience = STALLED[0] if self.lowered else patience  # what fits is far from what the program says
        stalled = 0
        for count in range(PROOFS[1]):
            before_s = self.bound_s - self.credit_s
            close = before_s >= min(best_s, self.cutoff_s) * (1 - CLOSE)
            if self._ended() or (close and count >= often) or stalled >= patience:
                return
            solution = self._solved(guess=False, below_s=best_s + self.credit_s)
            self.bound_s = max(self.bound_s, solution.bound / PER_S)
            if solution.choices is None or self.bound_s - self.credit_s >= best_s * (1 - ENOUGH):
                return
            raised_s, known = self.bound_s - self.credit_s - before_s, len(self.learnt.missed_s)
            took = self._priced(solution.choices)
            found_s = took.estimate.step_time_s if self._is_within(took) else math.inf
            stalled = stalled + 1 if count and max(raised_s, best_s - found_s) < ENOUGH * best_s else 0
            best_s = min(best_s, found_s)
            if len(self.learnt.missed_s) == known:
                return

    def _look_beside(self) -> None:
        """Prices other solutions whole, as far as that is little work: those that cost least, then those beside the
        best. Of several that cost the same the solver finds one, and what costs leave out is seen in others.
        """
        program = self.program
        known = {tuple(choices) for choices, *_ in self.priced}
        left = BESIDE // len(program.wiring.nodes)
        if left < LEAST_BESIDE:
            return

        def look(decided: NDArray[np.int64]) -> bool:
            """Whether there is more to look at after one that may be known."""
            nonlocal left
            choices = tuple(program.choices(decided))
            if choices not in known:
                known.add(choices)
                left -= 1
                self._priced(decided, learns=False)
            return left > 0 and not self._ended()

        cheapest = every(program.problem(program.limit_bytes, self._nothing, guess=False, doubt=DOUBT), WAYS)
        most = left // 2
        for decided in cheapest[0] if cheapest is not None else ():
            if left <= most or not look(decided):
                break
        moves, before = program.moves(), None
        while self.best is not None and self.best is not before:
            before, chosen = self.best, np.array(self.best[1], np.int64)[program.deciders]
            beside = (other for node in range(len(chosen)) for other in moves.others(node, chosen))
            for _, other in sorted((moves.more_s(chosen, each), tuple(each)) for each in beside):
                if not look(np.array(other)) or self.best is not before:
                    break
        if self.best is not None:
            above_s = self.bound_s - self.credit_s - self.best[0].estimate.step_time_s
            self.bound_s -= 2 * max(above_s, 0.0)  # others may be below it by as much as the one that was seen

    def _solved(
        self, *, guess: bool, rows: Sequence[Row] = (), below_s: float = math.inf, learnt: Learnt | None = None
    ) -> Solution:
        left, learnt = max(self.deadline - time.monotonic(), 0.1), learnt or self.learnt
        problem = self.program.problem(self.limit_bytes, learnt, guess=guess, doubt=self.doubt, rows=rows)
        effort = None if guess and not rows else EFFORT
        found = solve(problem, time_limit_s=left, seed=self.seed, stop=self.stop, effort=effort, below=below_s * PER_S)
        self.count += 1
        bounds = not rows and not (guess and learnt.known) and self.limit_bytes in (None, self.program.limit_bytes)
        if bounds and not self.floor_s and found.choices is not None:
            self.floor_s = self.bound_s = found.bound / PER_S
        return found

    def _priced(self, decided: NDArray[np.int64], *, learns: bool = True) -> Exact:
        """The exact price of a solution, which is kept if it is the best that fits. Where it ``learns`` it is learnt
        from, and what it takes less than its costs counts against the bound.
        """
        program = self.program
        choices = program.choices(decided)
        took = exact(program.wiring, choices, program.mesh, program.machine)
        costs = [node.costs for node in program.wiring.nodes]
        seconds = took.estimate.step_time_s
        less_s = -sum(min(each.seconds, 0.0) for each in took.missed)
        if learns:
            self.learnt.learn(took.missed, choices, costs, LEAST * seconds)
            self.priced.append((choices, seconds, less_s, sum(each.seconds for each in took.missed)))
        limit, peak = program.limit_bytes, took.estimate.peak_bytes
        self._seen(peak, choices)
        if limit is not None and peak > limit:
            self.misfits[tuple(choices)] = Misfit(peak_bytes=peak, held_bytes=took.held_bytes)
        elif self.best is None or seconds < self.best[0].estimate.step_time_s:
            self.best = (took, choices)
        return took

    def _seen(self, peak_bytes: int, choices: Choices) -> None:
        """Keeps the solution of the least peak."""
        if self.least is None or peak_bytes < self.least[0]:
            self.least = peak_bytes, choices

    @property
    def _nothing(self) -> Learnt:
        """Nothing learnt."""
        return Learnt(leader=self.program.leader, guess_s=self.learnt.guess_s)

    def _is_within(self, took: Exact) -> bool:
        limit = self.program.limit_bytes
        return limit is None or took.estimate.peak_bytes <= limit

    def _fits(self, took: Exact, solution: Solution) -> bool:
        """Whether a solution fits; if not, the limit that the next is solved with."""
        limit, peak = self.program.limit_bytes, took.estimate.peak_bytes
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
            self.infeasible, self.doubt = self.doubt >= DOUBT, DOUBT
            return not self.infeasible
        self.too_low = self.limit_bytes
        self.limit_bytes = (self.limit_bytes + limit) // 2
        return self.limit_bytes - self.too_low > limit * CLOSE

    @property
    def credit_s(self) -> float:
        """The most that a solution near the best took less than its costs: in some places, or in all with what others
        taught of it.
        """
        best_s = self.best[0].estimate.step_time_s if self.best is not None else math.inf
        near = [each for each in self.priced if each[1] <= best_s * NEAR]
        less_s = (max(less_s, self.learnt.charged_s(choices) - more_s) for choices, _, less_s, more_s in near)
        return max(less_s, default=0.0)

    def _ended(self) -> bool:
        return time.monotonic() > self.deadline or (self.stop is not None and self.stop())

    def _answer(self) -> Found:
        if self.best is None:
            status: Status = "infeasible" if self.infeasible else "unknown"
            least_bytes, least = self.least or (0, None)
            return Found(
                status=status,
                objective_s=math.inf,
                bound_s=min(self.bound_s, self.cutoff_s),  # nothing was priced that credit could be seen in
                floor_s=min(self.floor_s, self.cutoff_s),
                peak_bytes=least_bytes,
                least=None if least is None else named_layouts(self.program.wiring, least),
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
            rounds=self.count,
        )


def _often(between: tuple[int, int], in_all: int, size: int) -> int:
    least, most = between
    return min(max(in_all // max(size, 1), least), most)
