"""The collectives that bring a tensor from one layout into another, in the order in which XLA's partitioner asks."""

from __future__ import annotations

import math
from collections.abc import Callable

from ...dsl.records import record
from ..graph import Axes, Sharding
from ..kinds import ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE
from .layout import Mesh, merged, named, used, ways
from .moves import exchanges, further_split, minor_part, taken_axes

SLICE = "dynamic_slice"


@record(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a resharding: ``kind`` is a collective's or ``dynamic_slice``, which moves nothing.

    ``axes`` are those that it works along, ``dims`` the dims whose split it changes (an all-to-all's: the one that is
    put together, then the one that is split), ``layout`` what it leaves.
    """

    kind: str
    axes: Axes
    dims: tuple[int, ...]
    layout: Sharding


def reshard_steps(source: Sharding, target: Sharding, mesh: Mesh) -> tuple[Step, ...]:
    """The steps from one layout to another, none where they agree.

    XLA looks at how many ways each dim is split. Splitting further is free, and fewer ways are one gather,
    and as many ways in all move by an all-to-all for a pair of dims; both together where that suffices. A permute
    then, or before a gather, puts the parts on the right devices. All else is gathered whole by one gather and split.
    """
    source, target = (tuple(merged(axes, mesh) for axes in layout) for layout in (source, target))
    if source == target:
        return ()
    if not any(source):
        return (Step(kind=SLICE, axes=used(target), dims=_changed(source, target), layout=target),)
    if _same_parts(source, target, mesh):
        axes = _moved_axes(source, target)
        return (Step(kind=COLLECTIVE_PERMUTE, axes=axes, dims=_changed(source, target), layout=target),)
    return _Resharding(source, target, mesh).steps()


def _changed(source: Sharding, target: Sharding) -> tuple[int, ...]:
    return tuple(dim for dim, (a, b) in enumerate(zip(source, target, strict=True)) if a != b)


def _same_parts(source: Sharding, target: Sharding, mesh: Mesh) -> bool:
    return all(ways(a, mesh) == ways(b, mesh) for a, b in zip(source, target, strict=True))


def _moved_axes(source: Sharding, target: Sharding) -> Axes:
    pairs = (pair for pair in zip(source, target, strict=True) if pair[0] != pair[1])
    return tuple(dict.fromkeys(axis for pair in pairs for layout in pair for axis in layout))


def _added_axes(source: Sharding, target: Sharding) -> Axes:
    return tuple(axis for a, b in zip(source, target, strict=True) for axis in b if axis not in a)


class _Resharding:
    """A layout on its way to another."""

    def __init__(self, source: Sharding, target: Sharding, mesh: Mesh):
        self.source = self.now = source
        self.target = target
        self.mesh = mesh
        self.done: list[Step] = []

    def steps(self) -> tuple[Step, ...]:
        tried = (self._slice, self._gather, self._exchange, self._turn, self._slice_part, self._gather_part)
        if not any(self._whole(way) for way in tried):
            self._gather_all()
        if self.now != self.target:
            self._leave(COLLECTIVE_PERMUTE, (), self.target)
        return tuple(self.done)

    def _whole(self, way: Callable[[], bool]) -> bool:
        """Goes one way, or back where it does not lead to parts of the right number."""
        if way():
            return True
        self.now, self.done = self.source, []
        return False

    def _slice(self) -> bool:
        """Dims split further only."""
        have, want = self._counts(self.now), self._counts(self.target)
        if any(w % h for h, w in zip(have, want, strict=True)):
            return False
        layout = further_split(self.now, self.target, self.mesh)
        if layout is not None and layout != self.now:
            self._leave(SLICE, (), layout)
        return layout is not None

    def _gather(self) -> bool:
        """Dims put together only, on the devices that hold them in the target's order."""
        have, want = self._counts(self.now), self._counts(self.target)
        if any(h % w for h, w in zip(have, want, strict=True)):
            return False
        layout = further_split(self.target, self.now, self.mesh)
        if layout is None:
            return False
        if layout != self.now:
            self._leave(COLLECTIVE_PERMUTE, (), layout)
        self._gather_to(self.target)
        return True

    def _exchange(self) -> bool:
        """Axes moved from dim to dim, as many ways in all."""
        found = exchanges(self._counts(self.now), self._counts(self.target))
        if found is None:
            return False
        for source, to, count in found:
            kept, moved = minor_part(self.now[source], count, self.mesh)
            if ways(moved, self.mesh) != count:
                return False
            now = list(self.now)
            now[source], now[to] = kept, (*now[to], *moved)
            self._leave(ALL_TO_ALL, moved, tuple(now), (source, to))
        return True

    def _turn(self) -> bool:
        """Every dim's axes moved to the dim before it, then the last one split."""
        if self.now[0] or self.now[1:] != self.target[:-1] or len(self.now) < 2:
            return False
        target, self.target = self.target, (*self.target[:-1], ())
        turned = self._exchange()
        self.target = target
        return turned and self._slice()

    def _slice_part(self) -> bool:
        """Whole dims split until all devices hold different parts, then axes moved."""
        have, want = self._counts(self.now), self._counts(self.target)
        devices = math.prod(self.mesh.values())
        left = devices // math.prod(have)
        spare = [axis for axis in used(self.target) if axis not in used(self.now)]
        if math.prod(want) != devices or left < 2:
            return False
        now = list(self.now)
        for dim, (h, w) in enumerate(zip(have, want, strict=True)):
            count = math.gcd(left, w) if h == 1 else 1
            taken = taken_axes(spare, count, self.target[dim], self.mesh)
            if taken is None:
                return False
            now[dim] = (*now[dim], *taken)
            left //= count
        if left == 1:
            self._leave(SLICE, (), tuple(now))
        return left == 1 and self._exchange()

    def _gather_part(self) -> bool:
        """The first dim of as many ways as are too many put together, then axes moved."""
        have, want = self._counts(self.now), self._counts(self.target)
        for dim, count in enumerate(have):
            if count > 1 and count * math.prod(want) == math.prod(have):
                self._gather_to(tuple(() if d == dim else axes for d, axes in enumerate(self.now)))
                return self._exchange()
        return False

    def _gather_all(self) -> None:
        """Gathered, but for dims split alike, and split again."""
        have, want = self._counts(self.now), self._counts(self.target)
        same = math.prod(have) == math.prod(want)
        kept = [w if h == w or (same and h % w == 0) else 1 for h, w in zip(have, want, strict=True)]
        parts = (minor_part(axes, h // k, self.mesh)[0] for axes, h, k in zip(self.now, have, kept, strict=True))
        layout = tuple(parts)
        split = further_split(layout, self.target, self.mesh) if self._counts(layout) == kept else None
        self._gather_to(layout if split is not None else ((),) * len(self.now))
        self._leave(SLICE, (), self.target if split is None else split)

    def _counts(self, layout: Sharding) -> list[int]:
        return [ways(axes, self.mesh) for axes in layout]

    def _gather_to(self, layout: Sharding) -> None:
        """One gather of all dims that this layout splits fewer ways."""
        gone = tuple(axis for axes, kept in zip(self.now, layout, strict=True) for axis in axes if axis not in kept)
        if gone:
            self._leave(ALL_GATHER, gone, layout)

    def _leave(self, kind: str, axes: Axes, layout: Sharding, dims: tuple[int, ...] | None = None) -> None:
        changed = dims if dims is not None else _changed(self.now, layout)
        over = axes or (_added_axes if kind == SLICE else _moved_axes)(self.now, layout)
        self.now = tuple(merged(split, self.mesh) for split in layout)
        self.done.append(Step(kind=kind, axes=named(over, self.mesh), dims=changed, layout=self.now))
