"""One search of a program: rounds of solving, and of learning what the solutions take exactly."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...solver.below import below
from ...solver.every import every
from ...solver.prepare import prepare
from ...solver.solution import Solution
from ..wiring.ways import open_ways
from .by_rows import DOUBT, EFFORT
from .found import Found, Status, Tell
from .limited import Limited
from .named import named_layouts
from .solutions import CLOSE, ENOUGH, LOOKING, NEAR, PER_S, Solutions, often

ROUNDS = 2, 10
"""How often solutions are looked for, at least and at most."""
WAYS, EVERY = 50_000, 2_500
"""Of no more ways to choose all are looked at, and all that may fit are priced if they have so few nodes together."""
MANY_CHOICES, BEGUN, BETWEEN = 3_000, 20_000, 5_000
"""Of programs of so many choices those solutions are listed that cost less than what was found takes, if at most so
many are begun, and priced, as far as that makes so many nodes in all.
"""
BESIDE, LEAST_BESIDE = 1_000, 8
"""Of so many nodes in all solutions beside the best are priced whole, where that makes some of them."""
PROOFS, PROVING = (0, 12), 24_000
"""How often it is tried to prove a solution, at least and at most, and so many choices in all, once it is ``CLOSE``."""
STALLED = (1, 4)
"""How many proofs one after the other that neither raise the bound nor find anything better end it, at least and at
most, of twice the choices in all; one that the solver could not complete besides ends it at once.
"""
HARDER = (1, 3), 3_000
"""How many times as hard proofs are tried of programs of few choices, at least and at most, so many choices in all;
where the bound is ``NEAR``.
"""
ONCE_MORE = 5
"""How many times as hard a proof is tried once more that the solver could not complete, of no more choices than
``PROVING``.
"""
TAKEN_BACK = 3
"""How often it is proven anew what the last solution that was priced took back."""


class Rounds:
    """Rounds of solving a program and of pricing what is found."""

    def __init__(self, kept: Solutions) -> None:
        self.kept = kept
        self.program = kept.program
        self.limited = Limited(kept)
        self.told_s = math.inf

    def run(self, tell: Tell | None = None) -> Found:
        """Solves without a limit on memory; if what is found does not fit, with it and with rows of what did not fit,
        and if that finds none, lowered by what it missed; then changes what did not fit until it does.

        Solutions are looked for by guesses of what others miss, of the best of which ``tell`` hears; then what is
        known exactly proves how good they are.
        """
        kept = self.kept
        known = self._price_every()
        if known is not None:
            return known
        prepare(kept.stop)
        for _ in range(often(ROUNDS, LOOKING, len(self.program.deciders))):
            limited = kept.limit_bytes is not None
            solution = kept.solved(guess=True)
            if self._open_ways(solution):
                again = kept.solved(guess=True)
                solution = solution if again.choices is None else again  # where the time ended
            if solution.choices is None:
                if kept.ended() or not self.limited.raise_limit(solution):
                    break
                continue
            if kept.floor_s > kept.cutoff_s:
                break
            took = kept.price(solution.choices)
            self._tell(tell)
            fits = self.limited.fits(took, solution)
            if limited and kept.best is None:
                if not self.limited.is_too_low():
                    self.limited.look()
                break
            if kept.ended() or (fits and kept.best_s <= solution.cost / PER_S * (1 + ENOUGH)):
                break
        if kept.best is None and kept.misfits and not kept.infeasible and not self.limited.weigh():
            self.limited.lower()
        if kept.best is not None:
            self._tell(tell)
            self._prove(kept.best_s)
            self._look_beside()
            self._price_between()
        return kept.answer()

    def _tell(self, tell: Tell | None) -> None:
        """Tells of the best, once."""
        kept = self.kept
        if tell is not None and kept.best_s < self.told_s and not kept.ended():
            self.told_s = kept.best_s
            tell(kept.best_s, named_layouts(self.program.wiring, kept.best[1]))  # type: ignore[index]

    def _open_ways(self, solution: Solution) -> bool:
        """Whether the program has more choices where a solution pays the same more than once: what was priced before
        is no measure of its costs then, and guesses bound nothing.
        """
        kept = self.kept
        program, decided = self.program, solution.choices
        if decided is None or not open_ways(
            program.wiring, program.leader, program.choices(decided), solution.cost / PER_S
        ):
            return False
        kept.learnt.widen(program.wiring)
        kept.bound_s = kept.floor_s = 0.0
        kept.priced.clear()
        if kept.learnt.known or kept.limit_bytes is not None:
            limit_bytes, kept.limit_bytes = kept.limit_bytes, None
            kept.solved(guess=False, learnt=kept.nothing)
            kept.limit_bytes = limit_bytes
        return True

    def _price_every(self) -> Found | None:
        """Prices all solutions, where that is little work; None where it is not, or the time ended."""
        kept = self.kept
        program = self.program
        if math.prod(len(program.wiring.nodes[node].costs) for node in program.deciders) > WAYS:
            return None  # before any row is made
        problem = program.problem(program.limit_bytes, kept.learnt, guess=False, sure=True)
        found = every(problem, WAYS)
        if found is None or len(found[0]) * len(program.wiring.nodes) > EVERY:
            return None
        for decided in found[0]:
            if kept.ended():
                return None
            kept.price(decided)
        kept.count, kept.infeasible = 1, kept.best is None
        if kept.best is None:
            return kept.answer()
        least_s = kept.least_s
        credit_s = max(float(found[1][0]) / PER_S - least_s, 0.0)
        status: Status = "optimal" if least_s >= kept.best_s * (1 - ENOUGH) else "feasible"
        return replace(kept.answer(), bound_s=least_s, floor_s=least_s, credit_s=credit_s, status=status)

    def _price_between(self) -> None:
        """Prices what costs less than the best takes, the cheapest first, where that is little work: what hangs on the
        whole step, as what lies in fast memory does, no cost of a few choices says. What is left after that takes no
        less than the next of them costs, but for what others took less.
        """
        kept, program = self.kept, self.program
        size = sum(len(program.wiring.nodes[node].costs) for node in program.deciders)
        is_proven = kept.bound_s - kept.credit_s >= self._worth_s * (1 - ENOUGH)
        if size > MANY_CHOICES or is_proven or kept.ended():
            return
        less_s, next_s = kept.credit_s, self._worth_s + kept.credit_s
        found = below(program.problem(None, kept.nothing, guess=False), next_s * PER_S, BEGUN, np.zeros(1, np.bool_))
        if found is None:
            return
        left = BETWEEN // len(program.wiring.nodes)
        known = {tuple(choices): seconds for choices, seconds, *_ in kept.priced}
        for decided, cost in zip(*found, strict=True):
            costs_s = float(cost) / PER_S
            if costs_s - less_s >= self._worth_s * (1 - ENOUGH) or not left or kept.ended():
                next_s = costs_s
                break
            choices = tuple(program.choices(decided))
            if choices not in known:
                left -= 1
                known[choices] = kept.price(decided, learns=False).estimate.step_time_s
            if known[choices] <= kept.best_s * NEAR:
                less_s = max(less_s, costs_s - known[choices])
        least_s = min(next_s - less_s, self._worth_s, kept.least_s)
        kept.bound_s = max(kept.bound_s, least_s + kept.credit_s)

    @property
    def _worth_s(self) -> float:
        """What a solution has to take less than to be of interest."""
        return min(self.kept.best_s, self.kept.cutoff_s)

    def _prove(self, best_s: float) -> None:
        """Solves with what was learnt exactly, until nothing cheaper can be or nothing more is learnt; within a limit
        by rows that are sure, or it would prove nothing. Where the last that was priced took back what was proven, it
        is proven anew with what is left of what was learnt.
        """
        kept = self.kept
        kept.limit_bytes = self.program.limit_bytes if kept.limit_bytes is not None else None
        kept.sure, kept.doubt = True, 1.0
        known = kept.learnt.corrected
        self._prove_in_turn(best_s)
        for _ in range(TAKEN_BACK):
            if kept.bound_s > kept.floor_s or kept.learnt.corrected == known or kept.ended():
                return
            known = kept.learnt.corrected
            solution = kept.solved(guess=False, below_s=kept.best_s + kept.credit_s)
            kept.bound_s = max(kept.bound_s, solution.bound / PER_S)
            if solution.choices is None:
                return
            kept.price(solution.choices)

    def _prove_in_turn(self, best_s: float) -> None:
        """The same, proof after proof."""
        kept = self.kept
        size = sum(len(self.program.wiring.nodes[node].costs) for node in self.program.deciders)
        proofs, patience = often(PROOFS, PROVING, size), often(STALLED, 2 * PROVING, size)
        patience = STALLED[0] if self.limited.lowered else patience  # what fits is far from what the program says
        harder, stalled, once_more = often(*HARDER, size), 0, 1
        for count in range(PROOFS[1]):
            before_s = kept.bound_s - kept.credit_s
            close = before_s >= min(best_s, kept.cutoff_s) * (1 - CLOSE)
            if kept.ended() or (close and count >= proofs) or stalled >= patience:
                return
            effort = EFFORT * max(harder if before_s * NEAR >= best_s else 1, once_more)
            solution = kept.solved(guess=False, below_s=best_s + kept.credit_s, effort=effort)
            kept.bound_s = max(kept.bound_s, solution.bound / PER_S)
            if kept.bound_s - kept.credit_s >= best_s * (1 - ENOUGH):
                return
            if solution.choices is None:
                if once_more > 1 or size > PROVING or solution.status != "unknown":
                    return
                once_more = ONCE_MORE
                continue
            raised_s, known = kept.bound_s - kept.credit_s - before_s, kept.learnt.state
            took = kept.price(solution.choices)
            found_s = took.estimate.step_time_s if kept.is_within(took) else math.inf
            if not count or max(raised_s, best_s - found_s) >= ENOUGH * best_s:
                stalled = 0
            else:
                stalled += 1 if solution.status == "optimal" else patience  # those after it will be harder
            best_s = min(best_s, found_s)
            if kept.learnt.state == known:
                return

    def _look_beside(self) -> None:
        """Prices other solutions whole, as far as that is little work: those that cost least, then those beside the
        best. Of several that cost the same the solver finds one, and what costs leave out is seen in others.
        """
        kept = self.kept
        program = self.program
        known = {tuple(choices) for choices, *_ in kept.priced}
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
                kept.price(decided, learns=False)
            return left > 0 and not kept.ended()

        cheapest = every(program.problem(program.limit_bytes, kept.nothing, guess=False, doubt=DOUBT), WAYS)
        most = left // 2
        for decided in cheapest[0] if cheapest is not None else ():
            if left <= most or not look(decided):
                break
        moves, before = program.moves(), None
        while kept.best is not None and kept.best is not before:
            before, chosen = kept.best, np.array(kept.best[1], np.int64)[program.deciders]
            beside = (other for node in range(len(chosen)) for other in moves.others(node, chosen))
            for _, other in sorted((moves.more_s(chosen, each), tuple(each)) for each in beside):
                if not look(np.array(other)) or kept.best is not before:
                    break
        if kept.best is not None:
            above_s = kept.bound_s - kept.credit_s - kept.best[0].estimate.step_time_s
            kept.bound_s -= 2 * max(above_s, 0.0)  # others may be below it by as much as the one that was seen
