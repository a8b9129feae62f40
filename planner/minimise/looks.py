"""Looks at how values lie under drafts, which propagation alone tells: each made once, and counted."""

from __future__ import annotations

from collections.abc import Sequence

from .groups import Group
from .guide import Cause, Guide
from .prices import Prices

LOOKS, FEWEST_LOOKS = 100_000, 16
"""How many values propagation is asked for, all in all, and how often at the least."""


class Looks:
    """What lies wrongly where causes are annotated. ``left`` is how often propagation may still be asked."""

    def __init__(self, prices: Prices, guide: Guide):
        self.prices, self.guide = prices, guide
        self.left = max(LOOKS // max(len(guide.flow.order), 1), FEWEST_LOOKS)
        self._seen: dict[frozenset[str], frozenset[str]] = {}

    def wrong(self, kept: Sequence[Cause]) -> frozenset[str]:
        """The values that lie wrongly where these are annotated."""
        paths = frozenset(paths_of(kept))
        if paths not in self._seen:
            self._seen[paths] = self.guide.wrong(self.prices.writer.draft_of(paths))
            self.left -= 1
        return self._seen[paths]


def groups_of(kept: Sequence[Cause]) -> list[Group]:
    """What causes annotate."""
    return [cause.group for cause in kept]


def paths_of(kept: Sequence[Cause]) -> set[str]:
    """The paths that causes annotate."""
    return {path for cause in kept for path in cause.group.paths}
