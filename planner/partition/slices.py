"""Slices, pads and windows: dims that are split take rows of their neighbours, or are whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..graph import Axes, Sharding
from .elementwise import follow_result
from .factors import layouts, split_of
from .layout import local_shape, ways
from .strategy import Asked, Halo, PartialSum, Strategy


def dynamic_slice_rule(asked: Asked) -> Strategy:
    """Dims that are cut are whole; all others follow the result."""
    cut = [a != b for a, b in zip(asked.reads[0].shape, asked.makes[0].shape, strict=True)]
    layout = _without_dims(asked.results[0], cut)
    scalars = tuple(() for _ in asked.reads[1:])
    sizes = local_shape(asked.makes[0].shape, layout, asked.mesh)
    return Strategy(operands=(layout, *scalars), made=(layout,), attributes={"slice_sizes": sizes})


def dynamic_update_rule(asked: Asked) -> Strategy:
    """Dims that are updated in part are whole; all others follow the result.

    Of a dim of which one place is updated each device has its part: one alone writes the place.
    """
    sizes = [*zip(asked.reads[0].shape, asked.reads[1].shape, strict=True)]
    layout = _without_dims(asked.results[0], [whole != part > 1 for whole, part in sizes])
    update = _without_dims(layout, [whole != part for whole, part in sizes])
    scalars = tuple(() for _ in asked.reads[2:])
    return Strategy(operands=(layout, update, *scalars), made=(layout,))


def _without_dims(layout: Sharding, whole: list[bool]) -> Sharding:
    return tuple(() if gone else axes for axes, gone in zip(layout, whole, strict=True))


@dataclass(frozen=True, slots=True)
class Side:
    """A window along one dim: ``size`` positions ``dilation`` apart, at every ``stride``-th place of the result.

    ``low`` places stand before the first number, ``spread`` is how far apart the numbers themselves are put.
    """

    size: int = 1
    stride: int = 1
    low: int = 0
    dilation: int = 1
    spread: int = 1

    def first(self, place: int) -> int:
        """The first number that a place of the result reads."""
        return -((self.low - place * self.stride) // self.spread)

    def last(self, place: int) -> int:
        """The last number that a place of the result reads."""
        reach = (self.size - 1) * self.dilation
        return (place * self.stride - self.low + reach) // self.spread


def slice_rule(asked: Asked) -> Strategy:
    """What lies in more parts than its slice is to is cut as it lies, and the slice is brought elsewhere after that.

    Seen on cpu, v3 and v5e.
    """
    lies = asked.operands[0]
    parts, made = (math.prod(ways(axes, asked.mesh) for axes in each) for each in (lies, asked.results[0]))
    return halo_rule(replace(asked, results=(lies,)) if parts > made else asked)


def halo_rule(asked: Asked) -> Strategy:
    """Slices, pads and windows are computed as the result lies; split dims that they work along exchange halos."""
    factors = asked.op.factors
    if factors is None:
        return follow_result(asked)
    moving = set(factors.permutation)
    split = split_of(factors.results[0], asked.results[0], factors.sizes, asked.mesh) or {}
    dims = [d for d, own in enumerate(factors.results[0]) if moving & set(own) and asked.results[0][d]]
    if not dims:
        return follow_result(asked)
    if asked.op.kind == "slice" and any(_is_sliver(asked, d) for d in dims):
        return _sliver(asked)
    halos = [halo(asked, side, d) for d, side in enumerate(_sides(asked)) if d in dims]
    if any(h is None for h in halos):
        return follow_result(asked)
    return Strategy(
        operands=layouts(factors.operands, split, factors, asked.mesh),
        made=asked.results,
        halos=tuple(h for h in halos if h is not None and h.low + h.high > 0),
    )


def concatenate_rule(asked: Asked) -> Strategy:
    """As the result lies, but for the dim along which it is put together: its axes split another one meanwhile."""
    layout = moved_axes(asked, asked.results[0], int(asked.op.attributes.get("dimension", 0)))
    return Strategy(operands=(layout,) * len(asked.operands), made=(layout,))


def moved_axes(asked: Asked, layout: Sharding, dim: int) -> Sharding:
    """A layout of the first result with this dim whole: its axes split the first other dim that they divide, if any."""
    shape = asked.makes[0].shape
    dim %= len(shape)
    axes = layout[dim]
    kept = [() if d == dim else own for d, own in enumerate(layout)]
    for other, size in enumerate(shape):
        if axes and other != dim and size % (ways(kept[other], asked.mesh) * ways(axes, asked.mesh)) == 0:
            kept[other] = (*kept[other], *axes)
            break
    return tuple(kept)


def _is_sliver(asked: Asked, dim: int) -> bool:
    """Whether what is cut out of a dim is no more rows than half as many as it has parts."""
    return 2 * asked.makes[0].shape[dim] <= ways(asked.results[0][dim], asked.mesh)


def _sliver(asked: Asked) -> Strategy:
    """A few rows are cut out where they lie and summed with the others' zeros."""
    cut = [a != b for a, b in zip(asked.reads[0].shape, asked.makes[0].shape, strict=True)]
    layout = asked.operands[0]
    axes = tuple(axis for own, gone in zip(layout, cut, strict=True) if gone for axis in own)
    made = _without_dims(layout, cut)
    return Strategy(operands=(layout,), made=(made,), sums=(PartialSum(axes),) if axes else ())


def halo(asked: Asked, side: Side, dim: int, out_dim: int | None = None) -> Halo | None:
    """What rows of its neighbours each part of operand 0 needs along a dim; None where it is nearly all."""
    out = dim if out_dim is None else out_dim
    axes = asked.results[0][out]
    parts = ways(axes, asked.mesh)
    own, made = (-(-size // parts) for size in (asked.reads[0].shape[dim], asked.makes[0].shape[out]))
    needed = [(side.first(i * made), side.last((i + 1) * made - 1)) for i in range(parts)]
    far = asked.op.kind == "slice" and side.stride == 1
    sent = rows_sent(own, needed, asked.reads[0].shape[dim]) if far else ()
    return Halo(0, dim, axes, max(sent), 0, sent) if sent else neighbours(dim, axes, own, needed)


def neighbours(dim: int, axes: Axes, own: int, needed: Sequence[tuple[int, int]]) -> Halo | None:
    """The halo of parts of ``own`` rows that need these rows, first and last; None where it is nearly all."""
    parts = len(needed)
    low = max(0, *(i * own - first for i, (first, _) in enumerate(needed[1:], 1)))
    high = max(0, *(last + 1 - (i + 1) * own for i, (_, last) in enumerate(needed[:-1])))
    return None if low + high >= (parts - 1) * own else Halo(0, dim, axes, low, high)


def rows_sent(own: int, needed: Sequence[tuple[int, int]], size: int) -> tuple[int, ...]:
    """The rows of each permute that brings parts of ``own`` rows the rows that they need; none if neighbours have all.

    A permute takes one run of rows from every part, to one part each. Each part's rows go with the first permute after
    the last one that its source is in, if their run meets what that takes of others, or else with a new one.
    """
    if all(i * own - first <= own and last + 1 - (i + 1) * own <= own for i, (first, last) in enumerate(needed)):
        return ()
    runs: list[tuple[int, int]] = []
    after: dict[int, int] = {}
    for target, (first, last) in enumerate(needed):
        last = min(last, size - 1)
        for source in range(first // own, last // own + 1):
            begin, end = max(first - source * own, 0), min(last + 1 - source * own, own)
            if source == target or begin >= end:
                continue
            at = after.get(source, 0)
            meeting = (n for n in range(at, len(runs)) if begin <= runs[n][1] and runs[n][0] <= end)
            chosen = next(meeting, len(runs))
            runs[chosen:] = [(begin, end)] if chosen == len(runs) else runs[chosen:]
            runs[chosen] = min(runs[chosen][0], begin), max(runs[chosen][1], end)
            after[source] = chosen + 1
    return tuple(end - begin for begin, end in runs)


def _sides(asked: Asked) -> list[Side]:
    given, rank = asked.op.attributes, len(asked.reads[0].shape)
    if asked.op.kind == "slice":
        return [Side(1, s, -b) for b, s in zip(given["start_indices"], given["strides"], strict=True)]
    if asked.op.kind == "pad":
        sides = zip(given["edge_padding_low"], given["interior_padding"], strict=True)
        return [Side(1, 1, low, 1, 1 + between) for low, between in sides]
    sizes, strides = given["window_dimensions"], given["window_strides"] or (1,) * rank
    lows = [low for low, _ in given["padding"]] if given.get("padding") else [0] * rank
    return windows(sizes, strides, lows, given.get("window_dilations") or (1,) * rank)


def windows(sizes: Sequence[int], strides: Sequence[int], lows: Sequence[int], dilations: Sequence[int]) -> list[Side]:
    """The windows of several dims."""
    return [Side(*side) for side in zip(sizes, strides, lows, dilations, strict=True)]
