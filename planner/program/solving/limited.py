"""How solutions are brought within the limit on memory where the program's own rows miss some."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...solver.solution import Solution
from ...solver.solve import solve
from ..rows.usage import misfit_row
from .by_rows import DOUBT, EFFORT, least_by_rows, looks
from .exact import Exact
from .lowering import Lowering
from .solutions import BEYOND, CLOSE, LOOKING, Solutions, often
from .weighing import Misfits, weigh

MENDING, MENDED = (4, 24), 6
"""How often a solution is looked for beside those that did not fit, at least and at most, and how often while none
takes less memory than others did.
"""
APPROACHED = 3
"""How many times as often solutions are looked for within limits that are lowered."""
LOWERED, STARTS = 2.0, 2
"""How many times the limit what did not fit may have taken to be changed until it does, and how many solutions are."""
PART = 0.5
"""Of the time that is left: for what is looked for by rows before solutions are changed, and then, once one fits, for
others that take less time, before it is proven how much less may do.
"""


class Limited:
    """The limit that the program's rows are held to.

    The program counts less than the exact price does, so where a solution does not fit the limit is lowered by as much;
    ``too_low`` is known to allow none. ``weighed`` are solutions that were to take less and do not fit; ``lowered``
    says that solutions were changed choice by choice.
    """

    def __init__(self, kept: Solutions) -> None:
        self.kept = kept
        self.program = kept.program
        self.too_low = 0
        self.lowered = False
        self.weighed: Misfits | None = None

    def fits(self, took: Exact, solution: Solution) -> bool:
        """Whether a solution fits; if not, the limit that the next is solved with."""
        kept = self.kept
        limit, peak = self.program.limit_bytes, took.estimate.peak_bytes
        if limit is None or peak <= limit:
            return True
        if kept.limit_bytes is None:
            kept.limit_bytes = limit
        else:
            lowered = min(kept.limit_bytes, solution.peak_usage) - (peak - limit)
            kept.limit_bytes = max(lowered, (self.too_low + kept.limit_bytes) // 2)
        return False

    def raise_limit(self, solution: Solution) -> bool:
        """Whether there is something left to try where nothing was found under the limit of now."""
        kept = self.kept
        limit = self.program.limit_bytes
        if solution.status != "infeasible" or kept.limit_bytes is None or limit is None:
            return False
        if kept.limit_bytes >= limit:
            kept.sure, kept.doubt = kept.doubt >= DOUBT, DOUBT  # what is solved from here on is a proof, or ``lower``
            return not (kept.sure or self.is_too_low())
        self.too_low = kept.limit_bytes
        kept.limit_bytes = (kept.limit_bytes + limit) // 2
        return kept.limit_bytes - self.too_low > limit * CLOSE

    def is_too_low(self) -> bool:
        """Whether it is proven that nothing fits: by rows that are sure."""
        kept, program = self.kept, self.program
        problem = program.problem(program.limit_bytes, kept.nothing, guess=False, sure=True)
        left = max(kept.deadline - time.monotonic(), 0.1)
        found = solve(problem, time_limit_s=left, seed=kept.seed, stop=kept.stop, effort=EFFORT)
        kept.infeasible = found.status == "infeasible"
        return kept.infeasible

    def look(self) -> None:
        """Looks for what fits by what memory is worth, and by rows of what does not, in a part of the time: what those
        miss is found where solutions are changed.
        """
        kept, deadline = self.kept, self.kept.deadline
        kept.deadline -= (1 - PART) * max(deadline - time.monotonic(), 0.0)
        if not (self.weigh() or self.mend()):
            self.approach()
        kept.deadline = deadline

    def weigh(self) -> bool:
        """Looks for what takes less memory by what that is worth, once; whether anything fits."""
        kept = self.kept
        if self.weighed is None and kept.misfits and kept.priced and not kept.ended():
            self.weighed = weigh(kept)
        return kept.best is not None

    def mend(self) -> bool:
        """Solves with rows of what did not fit; whether anything fits then."""
        kept = self.kept
        limit, lowered = self.program.limit_bytes, kept.limit_bytes
        if limit is None:
            return False
        self._within(limit, self._often)
        if kept.best is None:
            kept.limit_bytes = lowered
        return kept.best is not None

    def approach(self) -> bool:
        """Solves so within limits between the own and the least that was seen to be taken, each of which tells of more
        that does not fit, until these are close; whether anything fits then.
        """
        kept = self.kept
        limit, sure, doubt, lowered = self.program.limit_bytes, kept.sure, kept.doubt, kept.limit_bytes
        if limit is None or kept.least is None:
            return False
        kept.sure, kept.doubt = False, 1.0
        low, left = limit, APPROACHED * self._often
        while kept.least[0] - low > CLOSE * kept.least[0] and left > 0 and not kept.ended():
            between, before = (low + kept.least[0]) // 2, kept.count
            if not self._within(between, left):
                low = between
            left -= kept.count - before
        if kept.best is None and left > 0 and kept.least[0] <= limit * (1 + BEYOND):
            self._within(limit, left)
        kept.sure, kept.doubt = sure, doubt
        if kept.best is None:
            kept.limit_bytes = lowered
        return kept.best is not None

    @property
    def _often(self) -> int:
        return often(MENDING, LOOKING // 2, len(self.program.deciders))

    def _within(self, limit: int, most: int) -> bool:
        """Solves with rows of what takes more than a limit, so often at most; whether something is found within it."""
        kept = self.kept
        kept.limit_bytes = limit
        wiring, hopeful, stalled = self.program.wiring, False, 0
        for _ in range(most):
            if kept.ended() or stalled >= MENDED:
                return False
            known, least = len(kept.misfits), kept.least
            beyond = [(own, each) for own, each in kept.misfits.items() if each.peak_bytes > limit]
            rows = [misfit_row(wiring, own, each, limit, hopeful=hopeful) for own, each in beyond]
            solution = kept.solved(guess=True, rows=rows)
            if solution.choices is not None and kept.price(solution.choices).estimate.peak_bytes <= limit:
                return True
            stalled = stalled + 1 if kept.least is least else 0
            if len(kept.misfits) == known:
                if hopeful:
                    return False
                hopeful = True
        return False

    def lower(self) -> None:
        """Changes what takes least by the rows, and what came nearest to the limit, choice by choice until it fits,
        then until nothing beside it that fits takes less time.
        """
        kept = self.kept
        self.lowered = True
        limit, deciders = self.program.limit_bytes or 0, self.program.deciders
        descent = self.program.lowering(looks(len(deciders)), kept.ended)
        misfits = {**kept.misfits, **(self.weighed or {})}
        peaks = {each: misfit.peak_bytes for each, misfit in misfits.items()}
        near = sorted((each for each in peaks if peaks[each] <= LOWERED * limit), key=peaks.__getitem__)
        several = [np.array(each, np.int64)[deciders] for each in near[: STARTS - 1]]
        least = least_by_rows(
            self.program,
            (limit, min(peaks.values())) if kept.sure else (self.too_low, limit),
            kept.nothing,
            deadline=kept.deadline,
            seed=kept.seed,
            stop=kept.stop,
        )
        if least is not None:
            several.append(least)
        begin, until = time.monotonic(), kept.deadline - (1 - PART) * (kept.deadline - time.monotonic())
        for number, start in enumerate(several, 1):
            # each has its part of the time: what the first comes to is seldom where the others do
            ends = begin + number / len(several) * ((kept.deadline if kept.best is None else until) - begin)
            into = replace(descent, ended=partial(self._is_after, ends))
            fits = into.into(start, 1 / (len(several) - number + 1))
            descent.ended = partial(self._is_after, until)
            while fits is not None:
                kept.price(fits)
                fits = self._quicker(descent, fits)
        if descent.least is not None:
            peak, decided = descent.least
            kept.seen(peak, self.program.choices(decided))

    def _is_after(self, end: float) -> bool:
        return time.monotonic() > end or self.kept.ended()

    def _quicker(self, descent: Lowering, fits: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """What takes less time than a solution that fits, and is beside it."""
        kept = self.kept
        for other in descent.quicker(fits):
            before = kept.best
            kept.price(other)
            if kept.best is not before:
                return other
        return None
