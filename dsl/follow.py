"""``like``: which tensor a tensor follows, and what it keeps of that tensor's layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .tensors import Layout, Tensor


def by_path(tensors: Iterable[Tensor]) -> dict[str, list[Tensor]]:
    """The tensors at each path; a tagged value may stand at one path in several shapes."""
    index: dict[str, list[Tensor]] = {}
    for tensor in tensors:
        index.setdefault(tensor.path, []).append(tensor)
    return index


def counterparts(tensor: Tensor, target: str, index: Mapping[str, Sequence[Tensor]]) -> Sequence[Tensor]:
    """The tensors that ``tensor`` corresponds to under ``target``: those at the longest end of its path found there.

    ``opt/0/mu/enc/w`` corresponds under ``params`` to ``params/enc/w``; under a ``target`` that is itself a tensor,
    to that one. Empty where there is none.
    """
    segments = tensor.path.split("/")
    for start in range(len(segments) + 1):
        found = index.get("/".join([target, *segments[start:]]))
        if found:
            return found
    return ()


def best(tensor: Tensor, candidates: Sequence[Tensor]) -> Tensor:
    """The candidate to follow: the first of the same shape, else the first that lends its dims, else the first."""
    same = [c for c in candidates if c.shape == tensor.shape]
    fitting = [c for c in candidates if kept_dims(tensor.shape, c.shape) is not None]
    return [*same, *fitting, *candidates][0]


def kept_dims(shape: Sequence[int], followed: Sequence[int]) -> tuple[int | None, ...] | None:
    """For each dim of ``shape`` the dim of the ``followed`` shape that it is, None for a dim of size 1 left alone.

    Equal shapes keep every dim. Otherwise dims were dropped (the row and column sums of a factored optimiser): each
    dim is the next of its size, from the left. None as a whole where that cannot be.
    """
    if tuple(shape) == tuple(followed):
        return tuple(range(len(shape)))
    kept: list[int | None] = []
    position = 0
    for size in shape:
        if size == 1:
            kept.append(None)
            continue
        while position < len(followed) and followed[position] != size:
            position += 1
        if position == len(followed):
            return None
        kept.append(position)
        position += 1
    return tuple(kept)


def inherited(layout: Layout, kept: Sequence[int | None], followed: Sequence[int]) -> Layout | None:
    """The followed tensor's layout on the dims that were kept; None where an explicit device assignment loses dims."""
    if tuple(kept) == tuple(range(len(followed))) or layout.how in ("infer", "auto"):
        return layout
    if layout.how == "assigned":
        return None
    axes = tuple(() if i is None else layout.axes[i] for i in kept)
    padded = frozenset(j for j, i in enumerate(kept) if i in layout.padded)
    return Layout(axes=axes, padded=padded)


def cycle(path: Sequence[str]) -> Iterator[str]:
    """The part of a chain of names that repeats: from where its last name stands first."""
    return iter(path[path.index(path[-1]) :])
