"""Dominated choices and pairs: never better than another in cost, whatever the neighbours choose, nor in usage.

Goldstein's dead-end elimination (Biophys. J. 66, 1994), with usage; for pairs, given the neighbour's choice.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Floats, Ints
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
        most = _most(net, node)
        excess, blocked = _excess(net, node, most)
        keep = _undominated(excess, blocked)
        if len(keep) < net.counts[node]:
            choices += net.counts[node] - len(keep)
            keep_choices(net, node, keep)
            if pairs:  # what one costs above another does not hang on those that are gone
                most = _kept(most, keep)
                excess, blocked = _excess(net, node, most)
        net.changed[node] = False
        if pairs:
            forbidden += _forbid_pairs(net, node, most, excess, blocked)
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
def _most(net: Net, node: int) -> Floats:
    """[half, b, a]: the most that choice a can cost above b on each half edge, infinite where only a is forbidden."""
    halves = 0
    h = net.first[node]
    while h != NONE:
        halves += 1
        h = net.after[h]
    found = np.empty((halves, net.counts[node], net.counts[node]))
    h = net.first[node]
    for place in range(halves):
        _compare(_by_neighbour(net, h), found[place])
        h = net.after[h]
    return found


@internal
def _compare(table: Floats, most: Floats) -> None:
    """The most that choices cost above others beside any choice of a neighbour, by a table with a row for each."""
    others, count = table.shape
    for b in range(count):
        for a in range(count):
            most[b, a] = -np.inf
        for j in range(others):
            of_b = table[j, b]
            if of_b < np.inf:
                for a in range(count):  # the innermost: several at once
                    more = table[j, a] - of_b
                    most[b, a] = more if more > most[b, a] else most[b, a]
        for a in range(count):
            if most[b, a] == -np.inf:
                most[b, a] = 0.0


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
def _kept(most: Floats, keep: Ints) -> Floats:
    found = np.empty((len(most), len(keep), len(keep)))
    for place in range(len(most)):
        for b in range(len(keep)):
            for a in range(len(keep)):
                found[place, b, a] = most[place, keep[b], keep[a]]
    return found


@internal
def _excess(net: Net, node: int, most: Floats) -> tuple[Floats, Ints]:
    """[b, a]: the most that choice a can cost above b, finite part, and on how many edges a may be forbidden: one more
    where a is b, or uses more of some row.
    """
    count = net.counts[node]
    excess = np.zeros((count, count))
    blocked = np.zeros((count, count), np.int64)
    at = net.cost_at[node]
    for b in range(count):
        for a in range(count):
            excess[b, a] = net.cost[at + a] - net.cost[at + b]
        blocked[b, b] = 1
    p = net.piece_first[node]
    while p != NONE:
        used = net.usage_at[p]
        for b in range(count):
            for a in range(count):
                if net.usage[used + a] > net.usage[used + b]:
                    blocked[b, a] = 1
        p = net.piece_after[p]
    for place in range(len(most)):
        for sign in (1,):  # a constant handed over would compile a version of its own
            _add(most[place], excess, blocked, sign)
    return excess, blocked


@internal
def _add(most: Floats, excess: Floats, blocked: Ints, sign: int) -> None:
    count = len(most)
    for b in range(count):
        for a in range(count):
            if most[b, a] == np.inf:
                blocked[b, a] += sign
            else:
                excess[b, a] += sign * most[b, a]


@internal
def _undominated(excess: Floats, blocked: Ints) -> Ints:
    count = len(excess)
    good = np.ones(count, np.bool_)
    for b in range(count - 1, -1, -1):
        for a in range(count):
            if good[a] and blocked[b, a] == 0 and excess[b, a] <= 0:
                good[b] = False
                break
    return np.flatnonzero(good)


@internal
def _forbid_pairs(net: Net, node: int, most: Floats, excess: Floats, blocked: Ints) -> int:
    """Forbids a choice beside a neighbour's where another choice is no worse beside it."""
    forbidden = 0
    h = net.first[node]
    for place in range(len(most)):
        for sign in (-1, 1):
            _add(most[place], excess, blocked, sign)
            if sign < 0:
                table = _by_neighbour(net, h)
                found = _forbid_on(net, h, table, excess, blocked)
                if found:
                    _compare(table, most[place])
                    forbidden += found
        h = net.after[h]
    return forbidden


@internal
def _forbid_on(net: Net, half: int, table: Floats, excess: Floats, blocked: Ints) -> int:
    """Forbids pairs of one edge that are dominated given what choices cost elsewhere, in ``table`` as well."""
    forbidden = 0
    start, own, far = strides(net, half)
    others, count = table.shape
    least = np.empty(count)  # of each choice beside any of the neighbour's
    for a in range(count):
        least[a] = np.inf
        for j in range(others):
            least[a] = min(least[a], table[j, a])
    above = np.empty(count)
    for b in range(count - 1, -1, -1):
        best = np.inf
        for a in range(count):
            above[a] = excess[b, a] if blocked[b, a] == 0 else np.inf
            best = min(best, above[a] + least[a])
        for j in range(others):
            of_b = table[j, b]
            if of_b == np.inf or of_b < best:
                continue
            cheapest = np.inf
            for a in range(count):
                total = table[j, a] + above[a]
                cheapest = total if total < cheapest else cheapest
            if cheapest <= of_b:
                table[j, b] = net.table[start + b * own + j * far] = np.inf
                net.changed[net.end[half]] = net.changed[net.end[half ^ 1]] = True
                forbidden += 1
    return forbidden
