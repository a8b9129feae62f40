"""Layouts carried between an operation's tensors by the factors of its loop nest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..graph import Axes, Factors, Sharding
from .layout import Mesh, ways

Split = dict[int, Axes]


def split_of(dims: Sequence[tuple[int, ...]], sharding: Sharding, sizes: Sequence[int], mesh: Mesh) -> Split | None:
    """The axes of each factor of a tensor; None where an axis would cut across two factors."""
    found: Split = {}
    for factors, axes in zip(dims, sharding, strict=True):
        if not axes:
            continue
        if len(factors) == 1:
            found[factors[0]] = axes
        elif not _share(factors, axes, sizes, mesh, found):
            return None
    return found


def _share(factors: Sequence[int], axes: Axes, sizes: Sequence[int], mesh: Mesh, found: Split) -> bool:
    """Gives a dim's axes to its factors, major first; False where they do not come out even."""
    left = list(axes)
    for factor in factors:
        taken: list[str] = []
        room = sizes[factor]
        while left and room % mesh[left[0]] == 0 and room > 1:
            room //= mesh[left[0]]
            taken.append(left.pop(0))
        if taken:
            found[factor] = tuple(taken)
        if not left:
            return True
        if room > 1:
            return False
    return not left


def layout_of(
    dims: Sequence[tuple[int, ...]], split: Mapping[int, Axes], sizes: Sequence[int], mesh: Mesh
) -> Sharding | None:
    """A tensor's layout where its factors are split so; None where a minor factor is split and a major one is not."""
    layout: list[Axes] = []
    for factors in dims:
        if len(factors) == 1:
            layout.append(split.get(factors[0], ()))
            continue
        axes: Axes = ()
        full = True
        for factor in factors:
            own = split.get(factor, ())
            if own and not full:
                return None
            axes = (*axes, *own)
            full = full and ways(own, mesh) == sizes[factor]
        layout.append(axes)
    return tuple(layout)


def kept(split: Mapping[int, Axes], factors: Iterable[int]) -> Split:
    """The split of some factors alone."""
    return {f: split[f] for f in factors if f in split}


def cut(split: Mapping[int, Axes], factors: Iterable[int]) -> Split:
    """The split without some factors."""
    gone = frozenset(factors)
    return {f: axes for f, axes in split.items() if f not in gone}


def layouts(
    rules: Sequence[Sequence[tuple[int, ...]]], split: Mapping[int, Axes], factors: Factors, mesh: Mesh
) -> tuple[Sharding, ...]:
    """The layouts of several tensors under one split, each dim as far as it can be said."""
    return tuple(
        layout_of(dims, split, factors.sizes, mesh) or layout_of(dims, {}, factors.sizes, mesh) or () for dims in rules
    )
