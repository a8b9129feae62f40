"""Dominated choices and pairs: never better than another in cost, whatever the neighbours choose, nor in usage.

Goldstein's dead-end elimination (Biophys. J. 66, 1994), with usage; for pairs, given the neighbour's choice.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Flags, Floats, Ints
from ..compiled import compiled, internal
from .edges import strides
from .keep import keep_choices
from .net import NONE, Net


@compiled
def remove_dominated(net: Net, most_work: int, pairs: bool) -> tuple[int, int]:
    """Removes dominated choices, and with ``pairs`` forbids dominated pairs. How many choices, how many pairs.

    Nodes that would take more than ``most_work`` operations are passed over, and those that have not changed.
    """
    choices, forbidden = 0, 0
    for node in range(len(net.alive)):
        if not net.changed[node] or not net.alive[node] or net.counts[node] == 1 or _work(net, node) > most_work:
            continue
        net.changed[node] = False
        no_more = _uses_no_more(net, node)
        excess, blocked = _excess(net, node, no_more)
        keep = _undominated(excess, blocked, no_more)
        if len(keep) < net.counts[node]:
            choices += net.counts[node] - len(keep)
            keep_choices(net, node, keep)
            if not pairs:
                continue
            no_more = _uses_no_more(net, node)
            excess, blocked = _excess(net, node, no_more)
        if pairs:
            forbidden += _forbid_pairs(net, node, excess, blocked, no_more)
    return choices, forbidden


@internal
def _work(net: Net, node: int) -> int:
    width = 1
    h = net.first[node]
    while h != NONE:
        width += net.counts[net.end[h ^ 1]]
        h = net.after[h]
    return int(width * net.counts[node] * net.counts[node])


@internal
def _uses_no_more(net: Net, node: int) -> Flags:
    """[a, b]: choice a uses no more than choice b on any row."""
    count = net.counts[node]
    no_more = np.ones((count, count), np.bool_)
    p = net.piece_first[node]
    while p != NONE:
        at = net.usage_at[p]
        for a in range(count):
            for b in range(count):
                if net.usage[at + a] > net.usage[at + b]:
                    no_more[a, b] = False
        p = net.piece_after[p]
    return no_more


@internal
def _excess(net: Net, node: int, no_more: Flags) -> tuple[Floats, Ints]:
    """[a, b]: the most that choice a can cost above b, finite part, and on how many edges a may be forbidden.

    Only where choice a uses no more than b.
    """
    count = net.counts[node]
    excess = np.zeros((count, count))
    blocked = np.zeros((count, count), np.int64)
    at = net.cost_at[node]
    for a in range(count):
        for b in range(count):
            excess[a, b] = net.cost[at + a] - net.cost[at + b]
    h = net.first[node]
    while h != NONE:
        for sign in (1,):  # a constant handed over would compile a version of its own
            _add_excess(net, h, excess, blocked, no_more, sign)
        h = net.after[h]
    return excess, blocked


@internal
def _add_excess(net: Net, half: int, excess: Floats, blocked: Ints, no_more: Flags, sign: int) -> None:
    count, others = net.counts[net.end[half]], net.counts[net.end[half ^ 1]]
    table = _by_neighbour(net, half)
    most = np.empty(count)
    for b in range(count):
        for a in range(count):
            most[a] = -np.inf
        for j in range(others):
            of_b = table[j, b]
            if of_b < np.inf:
                for a in range(count):  # the innermost: several at once
                    more = table[j, a] - of_b
                    most[a] = more if more > most[a] else most[a]
        for a in range(count):
            if a == b or not no_more[a, b]:
                continue
            if most[a] == np.inf:
                blocked[a, b] += sign
            elif most[a] > -np.inf:
                excess[a, b] += sign * most[a]


@internal
def _by_neighbour(net: Net, half: int) -> Floats:
    """The half edge's table, a row for each choice of the neighbour."""
    start, own, far = strides(net, half)
    table = np.empty((net.counts[net.end[half ^ 1]], net.counts[net.end[half]]))
    for j in range(len(table)):
        for a in range(table.shape[1]):
            table[j, a] = net.table[start + a * own + j * far]
    return table


@internal
def _undominated(excess: Floats, blocked: Ints, no_more: Flags) -> Ints:
    count = len(excess)
    good = np.ones(count, np.bool_)
    for b in range(count - 1, -1, -1):
        for a in range(count):
            if a != b and good[a] and blocked[a, b] == 0 and no_more[a, b] and excess[a, b] <= 0:
                good[b] = False
                break
    return np.flatnonzero(good)


@internal
def _forbid_pairs(net: Net, node: int, excess: Floats, blocked: Ints, no_more: Flags) -> int:
    """Forbids a choice beside a neighbour's where another choice is no worse beside it."""
    forbidden = 0
    h = net.first[node]
    while h != NONE:
        for sign in (-1, 1):
            _add_excess(net, h, excess, blocked, no_more, sign)
            if sign < 0:
                forbidden += _forbid_on(net, h, excess, blocked, no_more)
        h = net.after[h]
    return forbidden


@internal
def _forbid_on(net: Net, half: int, excess: Floats, blocked: Ints, no_more: Flags) -> int:
    """Forbids pairs of one edge that are dominated given what choices cost elsewhere."""
    forbidden = 0
    start, own, far = strides(net, half)
    count = len(excess)
    for j in range(net.counts[net.end[half ^ 1]]):
        for b in range(count - 1, -1, -1):
            of_b = net.table[start + b * own + j * far]
            if of_b == np.inf:
                continue
            for a in range(count):
                if a == b or blocked[a, b] > 0 or not no_more[a, b]:
                    continue
                if net.table[start + a * own + j * far] - of_b + excess[a, b] <= 0:
                    net.table[start + b * own + j * far] = np.inf
                    net.changed[net.end[half]] = net.changed[net.end[half ^ 1]] = True
                    forbidden += 1
                    break
    return forbidden
