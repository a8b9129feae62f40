"""A node merged into the one that determines it, and the record of nodes that others decide."""

from __future__ import annotations

from ..arrays import Ints
from ..compiled import internal
from .edges import attach, cut, strides, unlink
from .net import ANSWER, FULL, NONE, RECORD, TABLE, USAGE, Net


@internal
def record(net: Net, node: int, a: int, b: int) -> int:
    """Notes that ``a`` (and ``b``, unless NONE) decide the node; where its answers go, one per label (pair)."""
    at = net.used[ANSWER]
    r = net.used[RECORD]
    net.record[r, 0], net.record[r, 1], net.record[r, 2], net.record[r, 3] = node, a, b, at
    net.used[RECORD] += 1
    size = 1
    if a != NONE:
        size = net.labels[a]
    if b != NONE:
        size *= net.labels[b]
    net.used[ANSWER] += size
    net.alive[node] = False
    return int(at)


@internal
def merge(net: Net, half: int, choice: Ints) -> bool:
    """Merges a node into the one that determines it: ``half`` is the leader's, ``choice`` the follower's for each.

    False, with FULL set, where the pools have no room.
    """
    leader, follower = net.end[half], net.end[half ^ 1]
    count = net.counts[leader]
    if not _has_room(net, follower, count, net.labels[leader]):
        return False
    at = record(net, follower, leader, NONE)
    start, own, far = strides(net, half)
    for i in range(count):
        j = choice[i]
        net.cost[net.cost_at[leader] + i] += net.table[start + i * own + j * far] + net.cost[net.cost_at[follower] + j]
        net.answer[at + net.label[net.cost_at[leader] + i]] = net.label[net.cost_at[follower] + j]
    cut(net, half)
    while net.first[follower] != NONE:
        _move(net, net.first[follower], leader, choice)
    _move_pieces(net, follower, leader, choice)
    return True


@internal
def _has_room(net: Net, follower: int, count: int, labels: int) -> bool:
    """Whether the pools can take the follower's tables and usages, with this many choices each, and the answers."""
    tables, usages = 0, 0
    h = net.first[follower]
    while h != NONE:
        tables += count * net.counts[net.end[h ^ 1]]
        h = net.after[h]
    p = net.piece_first[follower]
    while p != NONE:
        usages += count
        p = net.piece_after[p]
    full = (
        net.used[TABLE] + tables > len(net.table)
        or net.used[USAGE] + usages > len(net.usage)
        or net.used[ANSWER] + labels > len(net.answer)
    )
    net.used[FULL] = full
    return not full


@internal
def _move(net: Net, half: int, leader: int, choice: Ints) -> None:
    """Makes a follower's half edge one of the leader's."""
    other = net.end[half ^ 1]
    start, own, far = strides(net, half)
    others = net.counts[other]
    at = _take_table(net, len(choice) * others)
    for i in range(len(choice)):
        for j in range(others):
            net.table[at + i * others + j] = net.table[start + choice[i] * own + j * far]
    unlink(net, half)
    attach(net, half, leader, other, at)


@internal
def _move_pieces(net: Net, follower: int, leader: int, choice: Ints) -> None:
    p = net.piece_first[follower]
    while p != NONE:
        after = net.piece_after[p]
        at = net.used[USAGE]
        net.used[USAGE] += len(choice)
        for i in range(len(choice)):
            net.usage[at + i] = net.usage[net.usage_at[p] + choice[i]]
        net.usage_at[p] = at
        net.piece_after[p] = net.piece_first[leader]
        net.piece_first[leader] = p
        p = after
    net.piece_first[follower] = NONE


@internal
def _take_table(net: Net, size: int) -> int:
    """Room for a table in the pool."""
    at = net.used[TABLE]
    net.used[TABLE] += size
    return int(at)
