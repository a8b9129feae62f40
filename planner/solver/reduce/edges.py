"""What the reductions do to edges and nodes of a net: read a pair's cost, take out, move, join."""

from __future__ import annotations

from ..arrays import Ints
from ..compiled import compiled
from .net import ANSWER, FULL, NONE, RECORD, TABLE, USAGE, Net


@compiled
def strides(net: Net, half: int) -> tuple[int, int, int]:
    """Where the half edge's table begins, and how far apart its own end's and its other end's choices lie in it."""
    at = net.table_at[half // 2]
    if half % 2 == 0:
        return at, net.counts[net.end[half + 1]], 1
    return at, 1, net.counts[net.end[half]]


@compiled
def cut(net: Net, half: int) -> None:
    """Takes the edge out of the net."""
    for h in (half, half ^ 1):
        unlink(net, h)
        net.end[h] = NONE


@compiled
def unlink(net: Net, half: int) -> None:
    """Takes the half edge out of its node's list."""
    before, after = net.before[half], net.after[half]
    if before == NONE:
        net.first[net.end[half]] = after
    else:
        net.after[before] = after
    if after != NONE:
        net.before[after] = before


@compiled
def _link(net: Net, half: int, node: int) -> None:
    first = net.first[node]
    net.end[half] = node
    net.before[half] = NONE
    net.after[half] = first
    if first != NONE:
        net.before[first] = half
    net.first[node] = half


@compiled
def between(net: Net, a: int, b: int) -> int:
    """The half edge of ``a`` that leads to ``b``, or NONE; both lists are walked at once."""
    of_a, of_b = net.first[a], net.first[b]
    while of_a != NONE and of_b != NONE:
        if net.end[of_a ^ 1] == b:
            return int(of_a)
        if net.end[of_b ^ 1] == a:
            return int(of_b ^ 1)
        of_a, of_b = net.after[of_a], net.after[of_b]
    return NONE


@compiled
def _take_table(net: Net, size: int) -> int:
    """Room for a table in the pool."""
    at = net.used[TABLE]
    net.used[TABLE] += size
    return int(at)


@compiled
def attach(net: Net, half: int, node: int, other: int, at: int) -> None:
    """Makes the half edge one of ``node`` (its partner leads to ``other``) with the table at ``at``, node's rows first.

    An edge that is already between the two takes up the table.
    """
    existing = between(net, node, other)
    count, others = net.counts[node], net.counts[other]
    if existing != NONE:
        start, own, far = strides(net, existing)
        for i in range(count):
            for j in range(others):
                net.table[start + i * own + j * far] += net.table[at + i * others + j]
        unlink(net, half ^ 1)
        net.end[half] = net.end[half ^ 1] = NONE
        return
    _link(net, half, node)
    net.table_at[half // 2] = at
    if half % 2 == 1:
        _turn(net, at, count, others)


@compiled
def _turn(net: Net, at: int, rows: int, columns: int) -> None:
    """Transposes a table in the pool."""
    table = net.table[at : at + rows * columns].copy()
    for i in range(rows):
        for j in range(columns):
            net.table[at + j * rows + i] = table[i * columns + j]


@compiled
def record(net: Net, node: int, a: int, b: int, size: int) -> int:
    """Notes that ``a`` (and ``b``, unless NONE) decide the node; where its answers go, one per label (pair)."""
    at = net.used[ANSWER]
    r = net.used[RECORD]
    net.record[r, 0], net.record[r, 1], net.record[r, 2], net.record[r, 3] = node, a, b, at
    net.used[RECORD] += 1
    net.used[ANSWER] += size
    net.alive[node] = False
    return int(at)


@compiled
def merge(net: Net, half: int, choice: Ints) -> bool:
    """Merges a node into the one that determines it: ``half`` is the leader's, ``choice`` the follower's for each.

    False, with FULL set, where the pools have no room.
    """
    leader, follower = net.end[half], net.end[half ^ 1]
    count = net.counts[leader]
    if not _has_room(net, follower, count, net.labels[leader]):
        return False
    at = record(net, follower, leader, NONE, net.labels[leader])
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


@compiled
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


@compiled
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


@compiled
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


@compiled
def keep_choices(net: Net, node: int, keep: Ints) -> None:
    """Removes a node's choices but those in ``keep`` (ascending): from its costs, labels, tables and usages."""
    h = net.first[node]
    while h != NONE:
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


@compiled
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
