"""The collectives that bring a tensor from one layout into another, in the order in which XLA's partitioner asks."""

from __future__ import annotations

from dataclasses import dataclass

from ..graph import Axes, Sharding
from ..kinds import ALL_GATHER, ALL_TO_ALL, COLLECTIVE_PERMUTE
from .layout import Mesh, common_prefix, local_shape, used, ways

SLICE = "dynamic_slice"


@dataclass(frozen=True, slots=True, kw_only=True)
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

    Splitting further is free. What both layouts split, but differently, moves by one all-to-all for a pair of dims; if
    each dim has as many parts in both, the devices' parts are exchanged by a permute; the rest is gathered.
    """
    if source == target:
        return ()
    if not any(source):
        return (Step(kind=SLICE, axes=used(target), dims=_changed(source, target), layout=target),)
    if _same_parts(source, target, mesh):
        axes = _moved_axes(source, target)
        return (Step(kind=COLLECTIVE_PERMUTE, axes=axes, dims=_changed(source, target), layout=target),)
    return _Resharding(source, target, mesh).steps()


def step_bytes(step: Step, before: Sharding, shape: tuple[int, ...], bits: int, mesh: Mesh) -> int:
    """What one device holds of a step: the larger of what goes in and what comes out, in bytes; 0 of a slice."""
    if step.kind == SLICE:
        return 0
    sizes = [1, 1]
    for side, layout in enumerate((before, step.layout)):
        for size in local_shape(shape, layout, mesh):
            sizes[side] *= size
    return max(sizes) * bits // 8


def _changed(source: Sharding, target: Sharding) -> tuple[int, ...]:
    return tuple(dim for dim, (a, b) in enumerate(zip(source, target, strict=True)) if a != b)


def _same_parts(source: Sharding, target: Sharding, mesh: Mesh) -> bool:
    return all(ways(a, mesh) == ways(b, mesh) for a, b in zip(source, target, strict=True))


def _moved_axes(source: Sharding, target: Sharding) -> Axes:
    found: list[str] = []
    for a, b in zip(source, target, strict=True):
        if a != b:
            found += [axis for axis in (*a, *b) if axis not in found]
    return tuple(found)


class _Resharding:
    """A layout on its way to another."""

    def __init__(self, source: Sharding, target: Sharding, mesh: Mesh):
        self.now = source
        self.target = target
        self.mesh = mesh
        self.done: list[Step] = []

    def steps(self) -> tuple[Step, ...]:
        while self._exchange():
            pass
        for dim in reversed(range(len(self.now))):
            self._gather(dim)
        if self.now != self.target:
            self._leave(SLICE, (), self.target)
        return tuple(self.done)

    def _exchange(self) -> bool:
        """Moves minor axes from one dim to another that wants them next."""
        for dim, axes in enumerate(self.now):
            keep = common_prefix(axes, self.target[dim])
            for first in range(keep, len(axes)):
                wanted = self._taker(dim, axes[first:])
                if wanted is not None:
                    self._all_to_all(dim, wanted, axes[first:])
                    return True
        return False

    def _taker(self, dim: int, moving: Axes) -> int | None:
        """The dim that has these axes next in its target layout."""
        for other, axes in enumerate(self.now):
            if other != dim and (*axes, *moving) == self.target[other][: len(axes) + len(moving)]:
                return other
        return None

    def _all_to_all(self, source: int, to: int, axes: Axes) -> None:
        now = list(self.now)
        now[source] = now[source][: -len(axes)]
        now[to] = (*now[to], *axes)
        self._leave(ALL_TO_ALL, axes, tuple(now), (source, to))

    def _gather(self, dim: int) -> None:
        keep = common_prefix(self.now[dim], self.target[dim])
        gone = self.now[dim][keep:]
        if gone:
            now = list(self.now)
            now[dim] = now[dim][:keep]
            self._leave(ALL_GATHER, gone, tuple(now), (dim,))

    def _leave(self, kind: str, axes: Axes, layout: Sharding, dims: tuple[int, ...] | None = None) -> None:
        changed = dims if dims is not None else _changed(self.now, layout)
        self.done.append(Step(kind=kind, axes=axes or _moved_axes(self.now, layout), dims=changed, layout=layout))
        self.now = layout
