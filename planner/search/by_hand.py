"""Plans as teams lay them out by hand: nothing found is ever worse, and something is at hand whenever the time ends."""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...dsl.errors import PlanError
from ..graph import Sharding
from .candidates import Candidate
from .pen import Pen, keep_beyond
from .result import PricedPlan
from .simple import argument_bytes, simple_layouts
from .tried import Tried

GRACE_S = 0.7  # after the time is over: for the plans by hand of a small step, the first of which is always priced
BY_HAND = "laid out by hand: the batch split, the state with it or over an axis of its own, or nothing"


class ByHand:
    """Writes such plans."""

    def __init__(self, pen: Pen) -> None:
        self._pen = pen
        self._over_s: float | None = None  # when it was seen first that the time is over

    def write(self) -> None:
        """Prices what teams write by hand on the first mesh, while the first candidates are being solved.

        Nothing found is ever worse, and something is at hand whenever the time ends. Policies that recompute more are
        tried only where nothing fits without. Of large steps they are priced only where nothing else was found.
        """
        board = self._pen.board
        if board.by_hand or not board.tried:
            return
        first = board.tried[0].candidate
        for one in [one.candidate for one in board.tried if one.candidate.plan.mesh is first.plan.mesh]:
            if any(simple.priced for simple in board.by_hand):
                return
            self._pen.say(f"pricing simple plans of {one}")
            tensors = self._pen.workload.tensors_under(one.plan.remat)
            sizes = {name: size or 1 for name, size in one.plan.mesh.sizes.items()}
            limit = self._pen.settings.limit_bytes
            for _, layouts in simple_layouts(tensors, one.pins, sizes):
                if not self._is_in_grace:
                    return
                alone_s = 0.0 if any(map(any, layouts.values())) else one.floor_s * math.prod(sizes.values())
                if alone_s < board.best_s and (limit is None or argument_bytes(tensors, layouts, sizes) <= limit):
                    board.by_hand.append(self._simple_plan(one, layouts))

    def plan_of(self, candidate: Candidate) -> PricedPlan | None:
        """The plan laid out by hand whose arguments take least, priced whether it fits or not; None of a large step
        when the time is over.
        """
        if self._pen.clock.over and self._pen.board.is_large:
            return None
        tensors = self._pen.workload.tensors_under(candidate.plan.remat)
        sizes = {name: size or 1 for name, size in candidate.plan.mesh.sizes.items()}
        several = (layouts for _, layouts in simple_layouts(tensors, candidate.pins, sizes))
        one = self._simple_plan(candidate, min(several, key=lambda own: argument_bytes(tensors, own, sizes)))
        return one.priced or one.beyond

    def _simple_plan(self, candidate: Candidate, layouts: Mapping[str, Sharding]) -> Tried:
        """A candidate that is not to be solved, with the plan of these layouts if it fits."""
        one = Tried(candidate=candidate, bound_s=math.inf, cutoff_s=math.inf, solved=True, layouts=layouts, why=BY_HAND)
        try:
            written = self._pen.write(one, deadline=0.0)
        except PlanError:
            return one
        excess = self._pen.excess_bytes(written.estimate)
        if excess <= 0:
            self._pen.keep(one, written)
        else:
            one.why = f"{BY_HAND}: {int(excess):,} bytes more than the limit"
            keep_beyond(one, written)
        return one

    @property
    def _is_in_grace(self) -> bool:
        """Whether one more plan may be priced that is laid out by hand: of a small step also soon after the end."""
        if not self._pen.clock.over:
            return True
        self._over_s = self._pen.clock.elapsed_s if self._over_s is None else self._over_s
        gone_s = self._pen.clock.elapsed_s - self._over_s
        return not self._pen.board.is_large and (
            not self._pen.board.by_hand or gone_s + self._pen.board.writing_s <= GRACE_S
        )
