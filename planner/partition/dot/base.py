"""The products that need no grouping of devices: each tensor split over all of them or over none."""

from __future__ import annotations

from .looped import windowed
from .problem import Ask, Choice, Loops, Reduction, Split, axes_of


def base_case(loops: Loops, ask: Ask, may_reshard: bool) -> Choice | None:
    """XLA's base case: None unless some one class of dims is split over all the axes in play."""
    if any(0 < len(axes_of(s)) < len(ask.axes) for s in (ask.left, ask.right, ask.result)):
        return None
    return _Base(loops, ask).choice(may_reshard)


class _Base:
    """One base case, with how much of it is split along which class of dims."""

    def __init__(self, loops: Loops, ask: Ask):
        self.loops, self.ask = loops, ask
        self.all = loops.parts({0: tuple(ask.axes)}, (0,))

    def choice(self, may_reshard: bool) -> Choice | None:
        """The first of the known cases that fits."""
        found = self._batch(needs_exchange=True) or windowed(self.loops, self.ask, self.all)
        found = found or self._batch(needs_exchange=False)
        found = found or self._contracted(may_reshard) or self._free(must_match=True)
        if found is None and may_reshard:
            found = self._like_result() or self._free(must_match=False)
        return found or self._follow_contracted()

    def _full(self, split: Split, factors: tuple[int, ...]) -> bool:
        return self.loops.parts(split, factors) == self.all

    def _batch(self, needs_exchange: bool) -> Choice | None:
        ask, batch = self.ask, self.loops.batch
        left, right, result = (self._full(s, batch) for s in (ask.left, ask.right, ask.result))
        if left and right and _agree(ask.left, ask.right, batch):
            return Choice(left=ask.left, right=ask.right, raw=ask.left, made=ask.left)
        if left and result and _agree(ask.left, ask.result, batch) and (ask.right or not needs_exchange):
            return Choice(left=ask.left, right=ask.left, raw=ask.left, made=ask.left)
        if right and result and _agree(ask.right, ask.result, batch) and (ask.left or not needs_exchange):
            return Choice(left=ask.right, right=ask.right, raw=ask.right, made=ask.right)
        return None

    def _contracted(self, may_reshard: bool) -> Choice | None:
        ask, contracted = self.ask, self.loops.contracted
        if not (self._full(ask.left, contracted) and self._full(ask.right, contracted)):
            return None
        if any(self.loops.parts(ask.left, (f,)) != self.loops.parts(ask.right, (f,)) for f in contracted):
            return None
        return _summed(self.loops, ask, self._bigger())

    def _bigger(self) -> Split:
        sizes = [self.loops.num_bytes(self.ask.outer, side) for side in (0, 1)]
        return self.ask.right if sizes[0] < sizes[1] else self.ask.left

    def _free(self, must_match: bool) -> Choice | None:
        ask, loops = self.ask, self.loops
        for own, free, is_left in ((ask.left, loops.left_free, True), (ask.right, loops.right_free, False)):
            matches = self._full(own, free) and _agree(own, ask.result, free)
            if self._full(ask.result, free) and (matches or not must_match):
                split = {f: ask.result.get(f, ()) for f in free}
                left, right = (split, {}) if is_left else ({}, split)
                return Choice(left=left, right=right, raw=split, made=split)
        return None

    def _like_result(self) -> Choice | None:
        if not self._full(self.ask.result, self.loops.batch):
            return None
        split = self.ask.result
        return Choice(left=split, right=split, raw=split, made=split)

    def _follow_contracted(self) -> Choice | None:
        """One operand split along the sum, all else whole: the other follows where that moves less."""
        ask, loops = self.ask, self.loops
        if ask.result:
            return None
        whole = loops.elements(ask.outer, 2)
        for own, other, side in ((ask.right, ask.left, 1), (ask.left, ask.right, 0)):
            if not other and self._full(own, loops.contracted) and loops.elements(ask.outer, side) > whole:
                return _summed(loops, ask, own)
        return None


def _agree(one: Split, other: Split, factors: tuple[int, ...]) -> bool:
    return all(one.get(f, ()) == other.get(f, ()) for f in factors)


def _summed(loops: Loops, ask: Ask, split: Split) -> Choice:
    """Both operands split along the sum as ``split`` says; the sum is whole or, if asked, left in parts."""
    kept = {f: split[f] for f in loops.contracted if split.get(f)}
    wanted = ask.result if set(axes_of(ask.result)) == set(axes_of(kept)) else {}
    reduction = Reduction(axes_of(kept), wanted)
    return Choice(left=kept, right=kept, raw={}, made=wanted, reductions=(reduction,))
