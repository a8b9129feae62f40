"""Nodes of degree zero, one and two that use nothing: answered by their neighbours' choices (bucket elimination)."""

from __future__ import annotations

import numpy as np

from ..compiled import compiled
from .edges import attach, cut, record, strides, unlink
from .net import ANSWER, FULL, NONE, TABLE, Net

LARGEST_ANSWER = 1 << 16


@compiled
def eliminate(net: Net, growth: float) -> int:
    """Eliminates nodes without usage of degree 0, 1 and 2, until there is none (or a pool is FULL). How many.

    A node of degree two goes only where the new table has at most ``growth`` times the entries of its two tables.
    """
    gone = 0
    stack = np.flatnonzero(net.alive)
    height = len(stack)
    stack = np.concatenate((stack, np.zeros(4 * len(net.alive) + 4, np.int64)))
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
        _answer(net, node, a, b)
        gone += 1
        for w in (u, v):
            if w != NONE and height < len(stack):
                stack[height] = w
                height += 1
    return gone


@compiled
def _small(net: Net, a: int, b: int, growth: float) -> bool:
    u, v, node = net.end[a ^ 1], net.end[b ^ 1], net.end[a]
    table = net.counts[u] * net.counts[v]
    before = net.counts[node] * (net.counts[u] + net.counts[v])
    return bool(table <= growth * before and net.labels[u] * net.labels[v] <= LARGEST_ANSWER)


@compiled
def _has_room(net: Net, a: int, b: int) -> bool:
    answers = net.labels[net.end[a ^ 1]] if a != NONE else 1
    tables = 0
    if b != NONE:
        answers *= net.labels[net.end[b ^ 1]]
        tables = net.counts[net.end[a ^ 1]] * net.counts[net.end[b ^ 1]]
    full = net.used[TABLE] + tables > len(net.table) or net.used[ANSWER] + answers > len(net.answer)
    net.used[FULL] = full
    return not full


@compiled
def _answer(net: Net, node: int, a: int, b: int) -> None:
    """Records the node's best choice for each choice of its neighbours, and gives its cost to them."""
    if a == NONE:
        at = record(net, node, NONE, NONE, 1)
        best = np.argmin(net.cost[net.cost_at[node] : net.cost_at[node] + net.counts[node]])
        net.answer[at] = net.label[net.cost_at[node] + best]
        net.constant[0] += net.cost[net.cost_at[node] + best]
    elif b == NONE:
        _answer_one(net, node, a)
    else:
        _answer_two(net, node, a, b)


@compiled
def _answer_one(net: Net, node: int, a: int) -> None:
    u = net.end[a ^ 1]
    at = record(net, node, u, NONE, net.labels[u])
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


@compiled
def _answer_two(net: Net, node: int, a: int, b: int) -> None:
    u, v = net.end[a ^ 1], net.end[b ^ 1]
    at = record(net, node, u, v, net.labels[u] * net.labels[v])
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
