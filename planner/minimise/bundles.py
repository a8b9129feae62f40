"""Plans that say at once all that decides what a step takes: what its products and what is sent read and make.

A product's operands and result are one decision: said in part they ask for another one. So they are said together, then
what still lies wrongly before any heavy place, and what it takes to be as good as with all said. Of that the lines are
left out again without which values lie the same, and those that cost little.
"""

from __future__ import annotations

from collections.abc import Sequence

from .flow import Spot
from .guide import HEAVY, Cause, Guide, blame, seconds
from .looks import Looks, groups_of, paths_of
from .prices import Priced, Prices

WAVES = 8  # of values that lie wrongly once those before them are annotated
ROUNDS = 3  # of places that still take longer
HALVINGS = 4  # of what else is said, for the part that matters
LOST = 4e-4  # of a step: what a place has to take longer for to be looked at
SIFTING, PART = 16, 4  # looks for lines that change nothing, and no more than so large a part of all
BLOCKS = 4  # of lines that are tried without


class Bundles:
    """Says everything at heavy places, and then less."""

    def __init__(self, prices: Prices, guide: Guide, looks: Looks):
        self.prices, self.guide, self.looks = prices, guide, looks

    def run(self, everything: Priced) -> Priced | None:
        """A plan about as good as the best plan seen; None where none is found. ``everything`` annotates all."""
        if everything.estimate is None:
            return None
        best = everything.estimate
        places = {spot: took_s for spot, took_s in seconds(best).items() if took_s > HEAVY * best.step_time_s}
        kept = self._straight(self.guide.at(self.guide.deciding(places, best)), places)
        current = self.prices.of(paths_of(kept))
        for _ in range(ROUNDS):
            if current.estimate is None or self.prices.close(current) or self.prices.spent:
                break
            known = set(groups_of(kept))
            lost = blame(current.estimate, best, LOST)
            more = [cause for cause in self.guide.at(lost) if cause.group not in known]
            if not more:
                break
            kept = self._straight([*kept, *more], places)
            current = self.prices.of(paths_of(kept))
        if not self.prices.close(current):
            current, kept = self._completed(everything, kept)
        return self._fewer(current, kept) if self.prices.close(current) else None

    def _straight(self, kept: list[Cause], places: dict[Spot, float]) -> list[Cause]:
        """These, and what else lies wrongly first before places, until nothing does."""
        for _ in range(WAVES):
            found = self.guide.first(self.looks.wrong(kept), places, groups_of(kept)) if self.looks.left > 0 else []
            if not found:
                break
            kept = [*kept, *found]
        return kept

    def _completed(self, everything: Priced, kept: list[Cause]) -> tuple[Priced, list[Cause]]:
        """A plan that says these, and of all else as much as it takes to be about as good as one that says all."""
        known, current = set(groups_of(kept)), everything
        rest = [Cause(group=group, seconds=0.0, is_right=True) for group in self.guide.groups if group not in known]
        for _ in range(HALVINGS):
            half = 0 if self.prices.spent else len(rest) // 2
            for part in (rest[:half], rest[half:]) if half else ():
                trial = self.prices.of(paths_of([*kept, *part]))
                if self.prices.close(trial):
                    current, rest = trial, part
                    break
            else:
                break
        return current, [*kept, *rest]

    def _fewer(self, current: Priced, kept: list[Cause]) -> Priced:
        """A good plan without what changes nothing of how values lie, and without those of its lines that cost
        little.
        """
        if current.estimate is None:
            return current
        self.prices.whole_s = current.rank[1]
        left = self._without_idle(current, kept)
        trial = self.prices.of(paths_of(left))
        if self.prices.close(trial):
            current = trial
        else:
            left = kept
        lines = sorted(self._lines(left), key=lambda line: max(cause.seconds for cause in line))
        size = max(-(-len(lines) // BLOCKS), 1)
        for block in [lines[i : i + size] for i in range(0, len(lines), size)]:
            current, left = self._without(current, left, block)
        return current

    def _lines(self, kept: Sequence[Cause]) -> list[list[Cause]]:
        """The causes by the line of a plan that annotates them."""
        lines = self.prices.writer.lines_of(paths_of(kept))
        place = {path: number for number, line in enumerate(lines) for path in line}
        found: dict[int, list[Cause]] = {}
        for cause in kept:
            found.setdefault(place[cause.group.paths[0]], []).append(cause)
        return [found[number] for number in sorted(found)]

    def _without_idle(self, current: Priced, kept: list[Cause]) -> list[Cause]:
        """Those without which some value of a heavy place lies wrongly, as far as the looks go, and all operands."""
        if current.estimate is None:
            return kept
        watched = self.guide.heavy(current.estimate, ())
        values = [cause for line in self._lines(kept) for cause in line if not cause.group.is_operand]
        wrong = self.looks.wrong(kept) & watched
        least = self.looks.left - min(SIFTING, self.looks.left // PART)
        return self._sifted(kept, values, watched, wrong, least)

    def _sifted(
        self, left: list[Cause], block: Sequence[Cause], watched: frozenset[str], wrong: frozenset[str], least: int
    ) -> list[Cause]:
        """Those left without those of a block that change nothing of how watched values lie; ``least`` looks remain."""
        if not block or self.looks.left <= least:
            return left
        gone = set(groups_of(block))
        fewer = [cause for cause in left if cause.group not in gone]
        if self.looks.wrong(fewer) & watched <= wrong:
            return fewer
        half = len(block) // 2
        for part in (block[:half], block[half:]) if half else ():
            left = self._sifted(left, part, watched, wrong, least)
        return left

    def _without(
        self, current: Priced, left: list[Cause], block: Sequence[Sequence[Cause]]
    ) -> tuple[Priced, list[Cause]]:
        """The plan of ``left`` without those lines of a block that it does not need."""
        if not block or self.prices.spent:
            return current, left
        gone = {cause.group for line in block for cause in line}
        fewer = [cause for cause in left if cause.group not in gone]
        trial = self.prices.of(paths_of(fewer))
        if self.prices.worth(trial, current, len(block)):
            return trial, fewer
        half = len(block) // 2
        for part in (block[:half], block[half:]) if half else ():
            current, left = self._without(current, left, part)
        return current, left
