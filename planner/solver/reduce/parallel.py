"""Parallel edges made one."""

from __future__ import annotations

from ..compiled import compiled, internal
from .edges import attach, unlink
from .net import NONE, Net


@compiled
def join_parallel(net: Net) -> int:
    """Adds up the tables of edges between the same two nodes. How many edges that removes."""
    joined = 0
    for e in range(len(net.table_at)):
        half = 2 * e
        if net.end[half] != NONE and _has_twin(net, half):
            node, other, at = net.end[half], net.end[half + 1], net.table_at[e]
            unlink(net, half)
            net.end[half] = NONE
            attach(net, half, node, other, at)
            joined += 1
    return joined


@internal
def _has_twin(net: Net, half: int) -> bool:
    h = net.first[net.end[half]]
    while h != NONE:
        if h != half and net.end[h ^ 1] == net.end[half ^ 1]:
            return True
        h = net.after[h]
    return False
