"""What the reductions do to the edges of a net: find, take out, join."""

from __future__ import annotations

from ..compiled import internal
from .net import NONE, Net


@internal
def strides(net: Net, half: int) -> tuple[int, int, int]:
    """Where the half edge's table begins, and how far apart its own end's and its other end's choices lie in it."""
    at = net.table_at[half // 2]
    if half % 2 == 0:
        return at, net.counts[net.end[half + 1]], 1
    return at, 1, net.counts[net.end[half]]


@internal
def cut(net: Net, half: int) -> None:
    """Takes the edge out of the net."""
    for h in (half, half ^ 1):
        net.changed[net.end[h]] = True
        unlink(net, h)
        net.end[h] = NONE


@internal
def unlink(net: Net, half: int) -> None:
    """Takes the half edge out of its node's list."""
    before, after = net.before[half], net.after[half]
    if before == NONE:
        net.first[net.end[half]] = after
    else:
        net.after[before] = after
    if after != NONE:
        net.before[after] = before


@internal
def _link(net: Net, half: int, node: int) -> None:
    first = net.first[node]
    net.end[half] = node
    net.before[half] = NONE
    net.after[half] = first
    if first != NONE:
        net.before[first] = half
    net.first[node] = half


@internal
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


@internal
def attach(net: Net, half: int, node: int, other: int, at: int) -> None:
    """Makes the half edge one of ``node`` (its partner leads to ``other``) with the table at ``at``, node's rows first.

    An edge that is already between the two takes up the table.
    """
    net.changed[node] = net.changed[other] = True
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


@internal
def _turn(net: Net, at: int, rows: int, columns: int) -> None:
    """Transposes a table in the pool."""
    table = net.table[at : at + rows * columns].copy()
    for i in range(rows):
        for j in range(columns):
            net.table[at + j * rows + i] = table[i * columns + j]
