"""What is asked of candidates once they were solved."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from .board import Board
from .progress import Clock
from .solving import Solving
from .task import Found, Task
from .tried import CLOSE, Tried, beside
from .workload import Workload, lying


class Again:
    """Has the candidates of a board solved once more, otherwise than they were."""

    def __init__(self, board: Board, *, workload: Workload, solving: Solving, clock: Clock) -> None:
        self._board, self._workload, self._solving, self._clock = board, workload, solving, clock

    def within(self, one: Tried, lowered_bytes: int) -> bool:
        """Solves a candidate anew for so many bytes less than the limit; whether there are other layouts then."""
        found = self._asked(self._solving.task(one, self._clock.left_s / 2, lowered_bytes))
        if found is None or not found.layouts:
            return False
        one.objective_s, one.layouts = found.objective_s, found.layouts
        return True

    def lower(self, several: Sequence[Tried], clock: Clock) -> None:
        """Has the layouts of the least memory looked for, of each of several candidates in its part of a time."""
        share_s = clock.left_s * self._solving.workers / max(len(several), 1)
        flying = [
            (
                one,
                self._solving.submit(
                    replace(self._solving.task(one, share_s), lowest=True, limit_bytes=None, alone=False)
                ),
            )
            for one in several
        ]
        for one, future in flying:
            found = self._solving.answer(future, clock)
            if found is not None:
                one.keep_least(found)

    def cost_of(self, plan: Tried) -> float | None:
        """What the layouts of a plan cost in a program that is pinned to them; None where that is not known in time.

        What the plan leaves open may be found to be better otherwise, and so what lies over a part of an axis, which no
        program has: such layouts are put on the board, to be written.
        """
        if plan.priced is None or self._board.expected_s(plan) > self._clock.left_s:
            return None
        written = plan.priced.plan
        laid = self._workload.laid(written)
        lies = self._workload.lies(written) if laid is None else lying(laid)
        if lies is None:
            return None
        axes = written.mesh.sizes.keys()
        task = replace(
            self._solving.task(plan, self._clock.left_s),
            graph=self._workload.graph(written),
            mesh=written.mesh,
            pins={path: layout for path, layout in lies.items() if axes >= {*itertools.chain(*layout)}},
            loose=True,
            is_as_pinned=True,
            partly=False,
            limit_bytes=None,
            cutoff_s=math.inf,
        )
        found = self._asked(task)
        if found is None or not found.layouts:
            return None
        if found.objective_s < plan.step_time_s * (1 - CLOSE):
            own = replace(plan.candidate, plan=replace(plan.candidate.plan, mesh=written.mesh))
            self._board.by_hand.append(beside(own, found.objective_s, found.layouts))
        return found.bound_s + found.credit_s

    def loosen(self) -> None:
        """Puts the best layouts on the board, to be written, that a program has whose pins say nothing of what stays
        inside of kernels: parts that kernels are cut into at pins may take more than the kernel as a whole. What it
        proves holds whatever becomes of these pins.
        """
        solved = [one for one in self._board.tried if one.layouts and one.objective_s < math.inf]
        best = min(solved, key=lambda one: (one.objective_s, one.candidate.index), default=None)
        if best is None or not any(path.startswith("ops/") for path in best.candidate.pins):
            return
        if not best.inside:  # the same program
            best.loose_s = min(best.bound_s, best.objective_s)
            return
        if self._clock.over or self._board.expected_s(best) > self._clock.left_s:
            return
        task = replace(self._solving.task(best, self._clock.left_s), loose=True, cutoff_s=best.objective_s)
        found = self._asked(task)
        if found is None or found.status == "infeasible":
            return
        best.loose_s = min(found.bound_s, best.objective_s)
        if found.layouts and found.objective_s < best.objective_s * (1 - CLOSE):
            layouts = {**found.layouts, **best.candidate.pins}
            self._board.by_hand.append(beside(best.candidate, found.objective_s, layouts))

    def _asked(self, task: Task) -> Found | None:
        """What a worker answers in the search's time."""
        return self._solving.answer(self._solving.submit(task), self._clock)
