"""Followers: a node whose choice another's choice leaves no freedom is merged into that other."""

from __future__ import annotations

import numpy as np

from ..arrays import Ints
from ..compiled import compiled, internal
from .edges import strides
from .merge import merge
from .net import NONE, Net


@compiled
def merge_followers(net: Net) -> int:
    """Merges every node that is determined by a neighbour, until there is none (or a pool is FULL). How many."""
    merged = 0
    again = True
    while again:
        again = False
        for e in range(len(net.table_at)):
            half = 2 * e
            if net.end[half] == NONE:
                continue
            choice = _determined(net, half)
            if len(choice) == 0:
                half += 1
                choice = _determined(net, half)
            if len(choice) == 0:
                continue
            if not merge(net, half, choice):
                return merged
            merged += 1
            again = True
    return merged


@internal
def _determined(net: Net, half: int) -> Ints:
    """For each choice of the half edge's node the only one of the other end's that goes with it; else empty."""
    node, other = net.end[half], net.end[half ^ 1]
    count, others = net.counts[node], net.counts[other]
    choice = np.zeros(count, np.int64)
    start, own, far = strides(net, half)
    for i in range(count):
        partners = 0
        for j in range(others):
            if net.table[start + i * own + j * far] < np.inf:
                choice[i] = j
                partners += 1
                if partners > 1:
                    break
        if partners != 1:
            return choice[:0]
    return choice
