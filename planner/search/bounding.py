"""When it is asked what several meshes take at least, and what the answer says of their candidates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import median

from .alike import AXES, Alike
from .board import Board
from .task import Found, Task
from .tried import CLOSE, Tried

BOUNDING = 4
"""Times as long as to solve a mesh of one axis less: what it is likely to take."""
DEARER = 3
"""Times as long as that takes what proves more of a mesh by itself."""
FIRST = 2
"""So many of these are solved before, where there are as many: what is far from the best bounds slowly."""


@dataclass(slots=True, kw_only=True)
class Bounding:
    """Bounds what is alike on a board, with so many ``workers``: before it is solved, once there is something that it
    would have to be better than, and time enough. ``solving_s`` is what it took to solve each mesh of one axis less,
    ``longest_s`` the longest that it took to bound several, ``ended`` those that the time ended.
    """

    board: Board
    workers: int
    solving_s: list[float] = field(default_factory=list)
    longest_s: float = 0.0
    ended: list[Alike] = field(default_factory=list)

    def begin(self) -> None:
        """Begins another round, in which what the time ended may be asked once more; not where meshes are left out."""
        for several in self.ended:
            several.begun = False
        self.ended.clear()

    def before(self, one: Tried, left_s: float) -> Alike | None:
        """Those like a candidate that are to be bounded before it is solved, if any are. Those of few axes are solved
        before where all of them take no longer than that.
        """
        alike = (each for each in self.board.alike if one in each.members)
        several = next((each for each in alike if not each.begun and each.given_s < left_s), None)
        worth_s = self.board.worth_s * (1 - CLOSE)
        if several is None or one.bound_s >= worth_s:
            return None
        of_few = [other for other in several.members if other.num_axes < AXES and other.cutoff_s == -math.inf]
        if one in of_few and len(of_few) <= BOUNDING * self.workers:
            return None
        return several if self._is_in_time(1, left_s) else None

    def last(self, flying: int, left_s: float) -> Alike | None:
        """Some of the meshes that no candidate is on, or that were left to be bounded with others, once none is left to
        be solved: if there is time to bound them all beside those in flight, or there are few.
        """
        worth_s = self.board.worth_s * (1 - CLOSE)
        left = [
            each
            for each in self.board.alike
            if not each.begun
            and each.given_s < left_s
            and (each.unlisted or any(one.bound_s < worth_s for one in each.members))
        ]
        is_worth = worth_s < math.inf and not self.board.doubts
        is_tried = 0 < len(left) <= self.workers and left_s > 0 and is_worth  # nothing else is left
        return left[0] if is_tried or (left and self._is_in_time(len(left) + flying, left_s)) else None

    def task(self, several: Alike, own: Task) -> Task:
        """What is asked of several, by what would be asked of one of them alone."""
        several.begun, several.given_s = True, own.time_limit_s
        return replace(
            own,
            mesh=several.mesh,
            alike=several.meshes,
            cutoff_s=self.board.worth_s * (1 + self.board.credit),
            limit_bytes=None,
            doubted=False,
            alone=len(self.board.alike) == 1,
        )

    def is_enough(self, one: Tried, left_s: float) -> bool:
        """Whether it has to be enough what is known of a candidate with others: something is found, and to prove more
        of each that may be better takes longer each than of all, and there is not so much time.
        """
        several = next((each for each in self.board.alike if one in each.members), None)
        if several is None or self.board.worth_s == math.inf or not self.longest_s:
            return several is not None and self.board.worth_s < math.inf
        worth_s = self.board.worth_s * (1 - CLOSE)
        left = sum(other.bound_s < worth_s and other.num_axes == AXES for other in several.members)
        return math.ceil(left / self.workers) * self.longest_s * DEARER > left_s

    def learn(self, several: Alike, found: Found | None) -> None:
        """What several take at least: plans may take as much less than that as others took less."""
        board = self.board
        is_ended = found is None or found.ended
        if not (board.doubts or several.unlisted) and is_ended:
            self.ended.append(several)
        self.longest_s = max(self.longest_s, several.given_s if found is None else found.took_s)
        several.given_s = several.given_s if is_ended else 0.0
        if found is None or board.doubts:
            return
        several.bound(found.bound_s, max(found.bound_s * board.credit / (1 + board.credit), board.credit_s))

    def note(self, one: Tried, took_s: float) -> None:
        """What it took to solve a candidate."""
        if one.num_axes == AXES - 1:
            self.solving_s.append(took_s)

    def _is_in_time(self, count: int, left_s: float) -> bool:
        if len(self.solving_s) < FIRST:
            return False
        each_s = self.longest_s or BOUNDING * median(self.solving_s)
        return self.board.worth_s < math.inf and math.ceil(count / self.workers) * each_s <= left_s
