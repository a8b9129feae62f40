"""Batch dims of operand and indices brought to be split alike, as XLA's partitioner does before it groups by them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from ..layout import left_over, ways
from .groups import recounted
from .problem import INDICES, OPERAND, Ask, Lookup, Split


class Matched(NamedTuple):
    """The splits of operand and indices with as many parts of each batch dim, which lie as ``leads`` (one of the two)
    has them.
    """

    operand: Split
    indices: Split
    leads: int


def matched(lookup: Lookup, ask: Ask) -> Matched | None:
    """Both with the parts of the one that splits batch dims more; the other gives copies for it, or gets these parts
    alone if it is whole. None where nothing splits batch dims, or copies are too few.
    """
    counts = [_counts(lookup, split) for split in (ask.operand, ask.indices)]
    totals = [math.prod(count.values()) for count in counts]
    if totals == [1, 1]:
        return None
    if totals[0] > totals[1]:
        indices = _adjusted(lookup, ask, INDICES, counts[1], counts[0])
        return None if indices is None else Matched(ask.operand, indices, OPERAND)
    operand = _adjusted(lookup, ask, OPERAND, counts[0], counts[1])
    return None if operand is None else Matched(operand, ask.indices, INDICES)


def _adjusted(lookup: Lookup, ask: Ask, which: int, have: Mapping[int, int], want: Mapping[int, int]) -> Split | None:
    """The split of the tensor whose batch dims have no more parts, those that are missing taken from its copies."""
    split, other = (ask.operand, ask.indices)[which], (ask.indices, ask.operand)[which]
    if not any(split.values()):
        return {factor: other[factor] for factor in lookup.parallel if other.get(factor)}
    copies = ways(left_over(ask.axes, [axis for own in split.values() for axis in own], lookup.mesh), lookup.mesh)
    missing = math.prod(want.values()) // math.prod(have.values())
    if missing > 1 and any(want[factor] % count for factor, count in have.items()):
        return None
    return None if copies % missing else recounted(split, lookup.order(which), ask.axes, lookup, want)


def _counts(lookup: Lookup, split: Split) -> dict[int, int]:
    return {factor: ways(split.get(factor, ()), lookup.mesh) for factor in lookup.parallel}
