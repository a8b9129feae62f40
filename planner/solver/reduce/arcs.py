"""Arc consistency: a choice that no choice of some neighbour goes with is no choice (Mackworth 1977, AC-3)."""

from __future__ import annotations

import numpy as np

from ..compiled import compiled, internal
from .edges import strides
from .keep import keep_choices
from .net import NONE, Net


@compiled
def remove_unsupported(net: Net) -> int:
    """Removes choices that cost infinity or have only forbidden pairs on some edge, until none is left.

    How many it removed; -1 where a node has no choice left: no solution then exists.
    """
    removed = 0
    nodes = len(net.alive)
    waiting = net.alive.copy()
    stack = np.empty(nodes + 1, np.int64)
    height = 0
    for node in range(nodes):
        stack[height] = node
        height += waiting[node]
    while height > 0:
        height -= 1
        node = stack[height]
        waiting[node] = False
        keep = _supported(net, node)
        if len(keep) == net.counts[node]:
            continue
        if len(keep) == 0:
            return -1
        removed += net.counts[node] - len(keep)
        keep_choices(net, node, keep)
        h = net.first[node]
        while h != NONE:
            other = net.end[h ^ 1]
            if not waiting[other]:
                waiting[other] = True
                stack[height] = other
                height += 1
            h = net.after[h]
    return removed


@internal
def _supported(net: Net, node: int) -> np.ndarray:
    """The choices of the node that cost less than infinity with some choice of every neighbour."""
    count = net.counts[node]
    good = np.ones(count, np.bool_)
    for i in range(count):
        good[i] = net.cost[net.cost_at[node] + i] < np.inf
    h = net.first[node]
    while h != NONE:
        start, own, far = strides(net, h)
        other = net.end[h ^ 1]
        for i in range(count):
            found = False
            for j in range(net.counts[other]):
                if net.table[start + i * own + j * far] < np.inf:
                    found = True
                    break
            good[i] = good[i] and found
        h = net.after[h]
    return np.flatnonzero(good)
