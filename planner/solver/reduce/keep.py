"""Fewer choices for a node: the others go from all its arrays."""

from __future__ import annotations

from ..arrays import Ints
from ..compiled import internal
from .edges import strides
from .net import NONE, Net


@internal
def keep_choices(net: Net, node: int, keep: Ints) -> None:
    """Removes a node's choices but those in ``keep`` (ascending): from its costs, labels, tables and usages."""
    net.changed[node] = True
    h = net.first[node]
    while h != NONE:
        net.changed[net.end[h ^ 1]] = True
        _keep_in_table(net, h, keep)
        h = net.after[h]
    p = net.piece_first[node]
    while p != NONE:
        for i in range(len(keep)):
            net.usage[net.usage_at[p] + i] = net.usage[net.usage_at[p] + keep[i]]
        p = net.piece_after[p]
    at = net.cost_at[node]
    for i in range(len(keep)):
        net.cost[at + i] = net.cost[at + keep[i]]
        net.label[at + i] = net.label[at + keep[i]]
    net.counts[node] = len(keep)


@internal
def _keep_in_table(net: Net, half: int, keep: Ints) -> None:
    start, own, far = strides(net, half)
    others = net.counts[net.end[half ^ 1]]
    kept = len(keep)
    if half % 2 == 0:
        for i in range(kept):
            for j in range(others):
                net.table[start + i * others + j] = net.table[start + keep[i] * own + j * far]
    else:
        for j in range(others):
            for i in range(kept):
                net.table[start + j * kept + i] = net.table[start + keep[i] * own + j * far]
