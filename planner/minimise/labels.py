"""What one line can say to several tensors: axes of the dims from the front or from the back, or ``like`` another."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

from ...dsl.follow import best, by_path, counterparts, inherited, kept_dims
from ...dsl.plan import Infer, Like, Replicate
from ...dsl.records import record
from ...dsl.tensors import Layout, Tensor
from ..graph import Sharding

REPLICATE, INFER = Replicate(), Infer()


@record(frozen=True, slots=True, kw_only=True)
class Form:
    """The axes of a tensor's first dims (or last ones, ``from_back``), all others whole: ``E@expert ...``.

    ``padded`` are the positions in ``axes`` of dims that do not divide.
    """

    axes: Sharding
    from_back: bool
    padded: frozenset[int] = frozenset()


def layout_of(tensor: Tensor, sharding: Sharding, sizes: Mapping[str, int | None]) -> Layout:
    """The layout that a sharding is, on a mesh with these sizes; a dim that does not divide is padded.

    A dim of size 1 is whole: what is read of it all along a dim that is split has no part of it.
    """
    lies = tuple(axes if size > 1 else () for size, axes in zip(tensor.shape, sharding, strict=True))
    parts = [math.prod(sizes[axis] or 1 for axis in axes) for axes in lies]
    uneven = frozenset(i for i, (size, n) in enumerate(zip(tensor.shape, parts, strict=True)) if size % n)
    return Layout(axes=lies, padded=uneven)


def forms(layout: Layout) -> list[Hashable]:
    """What can be said of a tensor with this layout, without other tensors; the shorter first."""
    split = [i for i, axes in enumerate(layout.axes) if axes]
    if not split:
        return [REPLICATE]
    first, last, rank = split[0], split[-1], len(layout.axes)
    front = Form(axes=layout.axes[: last + 1], from_back=False, padded=layout.padded)
    padded = frozenset(i - first for i in layout.padded)
    back = Form(axes=layout.axes[first:], from_back=True, padded=padded)
    return [front, back] if last + 1 <= rank - first else [back, front]


class Likeness:
    """Which arguments a tensor may be ``like``: state follows state, where that gives it its own layout."""

    def __init__(self, tensors: Sequence[Tensor], layouts: Mapping[str, Layout]):
        self.layouts = layouts
        returned = {tensor.returns.split("/")[0] for tensor in tensors if tensor.returns}
        arguments = [tensor for tensor in tensors if tensor.role == "argument"]
        self.heads = list(dict.fromkeys(_head(t.path) for t in arguments if t.shape and _head(t.path) in returned))
        self.index = by_path(arguments)

    def labels(self, tensor: Tensor) -> list[Hashable]:
        """The arguments that ``tensor`` can be said to be like, the first first."""
        head = _head(tensor.path)
        if head not in self.heads and tensor.role != "result":
            return []
        before = self.heads[: self.heads.index(head)] if head in self.heads else self.heads
        return [Like(target=each) for each in before if not tensor.shape or self._follows(tensor, each)]

    def _follows(self, tensor: Tensor, target: str) -> bool:
        found = counterparts(tensor, target, self.index)
        if not found:
            return False
        source = best(tensor, found)
        kept, layout = kept_dims(tensor.shape, source.shape), self.layouts.get(source.path)
        if kept is None or layout is None or layout.how != "split":
            return False
        return inherited(layout, kept, source.shape) == self.layouts[tensor.path]


def _head(path: str) -> str:
    return path.split("/", maxsplit=1)[0]
