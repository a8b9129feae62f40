"""Separable edges: a table that is a sum of one term for each end is two node costs."""

from __future__ import annotations

import numpy as np

from ..compiled import compiled, internal
from .edges import cut, strides
from .net import NONE, Net


@compiled
def fold_separable(net: Net) -> int:
    """Folds every edge whose table is exactly a sum of a column and a row into its ends' costs. How many."""
    folded = 0
    for e in range(len(net.table_at)):
        half = 2 * e
        if net.end[half] != NONE and _separable(net, half):
            _fold(net, half)
            cut(net, half)
            folded += 1
    return folded


@internal
def _separable(net: Net, half: int) -> bool:
    start, own, far = strides(net, half)
    count, others = net.counts[net.end[half]], net.counts[net.end[half ^ 1]]
    corner = net.table[start]
    if corner == np.inf:
        return False
    for i in range(count):
        step = net.table[start + i * own] - corner
        for j in range(others):
            value = net.table[start + i * own + j * far]
            if value == np.inf or value - net.table[start + j * far] != step:
                return False
    return True


@internal
def _fold(net: Net, half: int) -> None:
    start, own, far = strides(net, half)
    node, other = net.end[half], net.end[half ^ 1]
    corner = net.table[start]
    for i in range(net.counts[node]):
        net.cost[net.cost_at[node] + i] += net.table[start + i * own] - corner
    for j in range(net.counts[other]):
        net.cost[net.cost_at[other] + j] += net.table[start + j * far]
