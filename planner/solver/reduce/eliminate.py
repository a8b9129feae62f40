"""Nodes of degree zero, one and two that use nothing: answered by their neighbours' choices (bucket elimination)."""

from __future__ import annotations

import numpy as np

from ..compiled import compiled, internal
from .edges import attach, cut, strides, unlink
from .merge import record
from .net import ANSWER, FULL, NONE, TABLE, Net

LARGEST_ANSWER = 1 << 16


@compiled
def eliminate(net: Net, growth: float) -> int:
    """Eliminates nodes without usage of degree 0, 1 and 2, until there is none (or a pool is FULL). How many.

    A node of degree two goes only where the new table has at most ``growth`` times the entries of its two tables.
    """
    gone = 0
    stack = np.empty(5 * len(net.alive) + 4, np.int64)
    height = 0
    for node in range(len(net.alive)):
        stack[height] = node
        height += net.alive[node]
    while height > 0:
        height -= 1
        node = stack[height]
        if not net.alive[node] or net.piece_first[node] != NONE:
            continue
        a = net.first[node]
        b = net.after[a] if a != NONE else NONE
        if b != NONE and net.after[b] != NONE:
            continue
        if b != NONE and not _small(net, a, b, growth):
            continue
        if not _has_room(net, a, b):
            return gone
        u = net.end[a ^ 1] if a != NONE else NONE
        v = net.end[b ^ 1] if b != NONE else NONE
        at = record(net, node, u, v)
        if a == NONE:
            _answer_none(net, node, at)
        elif b == NONE:
            _answer_one(net, a, at)
        else:
            _answer_two(net, a, b, at)
        gone += 1
        for w in (u, v):
            if w != NONE and height < len(stack):
                stack[height] = w
                height += 1
    return gone


@internal
def _small(net: Net, a: int, b: int, growth: float) -> bool:
    u, v, node = net.end[a ^ 1], net.end[b ^ 1], net.end[a]
    table = net.counts[u] * net.counts[v]
    before = net.counts[node] * (net.counts[u] + net.counts[v])
    return bool(table <= growth * before and net.labels[u] * net.labels[v] <= LARGEST_ANSWER)


@internal
def _has_room(net: Net, a: int, b: int) -> bool:
    answers = net.labels[net.end[a ^ 1]] if a != NONE else 1
    tables = 0
    if b != NONE:
        answers *= net.labels[net.end[b ^ 1]]
        tables = net.counts[net.end[a ^ 1]] * net.counts[net.end[b ^ 1]]
    full = net.used[TABLE] + tables > len(net.table) or net.used[ANSWER] + answers > len(net.answer)
    net.used[FULL] = full
    return not full


@internal
def _answer_none(net: Net, node: int, at: int) -> None:
    """Records the node's best choice."""
    best = net.cost_at[node]
    for choice in range(best, best + net.counts[node]):
        if net.cost[choice] < net.cost[best]:
            best = choice
    net.answer[at] = net.label[best]
    net.constant[0] += net.cost[best]


@internal
def _answer_one(net: Net, a: int, at: int) -> None:
    """Records the node's best choice for each of its neighbour's, and gives its cost to that."""
    node, u = net.end[a], net.end[a ^ 1]
    start, own, far = strides(net, a)
    for j in range(net.counts[u]):
        best, least = 0, np.inf
        for i in range(net.counts[node]):
            total = net.cost[net.cost_at[node] + i] + net.table[start + i * own + j * far]
            if total < least:
                best, least = i, total
        net.cost[net.cost_at[u] + j] += least
        net.answer[at + net.label[net.cost_at[u] + j]] = net.label[net.cost_at[node] + best]
    cut(net, a)


@internal
def _answer_two(net: Net, a: int, b: int, at: int) -> None:
    """Records the node's best choice for each two of its neighbours', and gives its cost to the edge between."""
    node, u, v = net.end[a], net.end[a ^ 1], net.end[b ^ 1]
    start_u, own_u, far_u = strides(net, a)
    start_v, own_v, far_v = strides(net, b)
    table = net.used[TABLE]
    net.used[TABLE] += net.counts[u] * net.counts[v]
    for j in range(net.counts[u]):
        for k in range(net.counts[v]):
            best, least = 0, np.inf
            for i in range(net.counts[node]):
                total = net.cost[net.cost_at[node] + i] + net.table[start_u + i * own_u + j * far_u]
                total += net.table[start_v + i * own_v + k * far_v]
                if total < least:
                    best, least = i, total
            net.table[table + j * net.counts[v] + k] = least
            pair = net.label[net.cost_at[u] + j] * net.labels[v] + net.label[net.cost_at[v] + k]
            net.answer[at + pair] = net.label[net.cost_at[node] + best]
    cut(net, a)
    unlink(net, b)
    attach(net, b, u, v, table)
