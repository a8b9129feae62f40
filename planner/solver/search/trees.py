"""Trees of nodes, grown at random, whose choices are made anew together by dynamic programming.

A tree is an induced one: none of its nodes has another edge to it than the one it was reached by. All other nodes keep
their choices, so what the tree costs is exact (Hamze and de Freitas, "From fields to trees", UAI 2004).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ..arrays import Flags, Floats, Ints
from ..bound.field import Field
from ..compiled import internal
from ..rows_used import Usage, add_use

ROOT = -1


class Desk(NamedTuple):
    """Room to work in; the first nodes of ``order`` are the trees at hand, each after the one it was reached from."""

    order: Ints  # nodes
    link: Ints  # of each node in a tree: its half edge to the one it was reached from, or ROOT
    inside: Flags  # of each node: whether it is in a tree
    touched: Ints  # of each node: edges to trees
    front: Ints  # half edges
    total: Floats  # of every node's choices: what it costs with all that hangs on it
    fresh: Ints  # of each node in a tree: the choice made


def new_desk(field: Field) -> Desk:
    """An empty one."""
    nodes = len(field.backward)
    return Desk(
        order=np.zeros(nodes, np.int64),
        link=np.full(nodes, ROOT),
        inside=np.zeros(nodes, np.bool_),
        touched=np.zeros(nodes, np.int64),
        front=np.zeros(len(field.other), np.int64),
        total=np.zeros(field.choice_start[-1]),
        fresh=np.zeros(nodes, np.int64),
    )


@internal
def grow(field: Field, desk: Desk, root: int, taken: int, most: int, random: np.random.Generator) -> int:
    """Adds a tree to the ``taken`` nodes until there are ``most``, if the root touches none. How many there are."""
    if desk.inside[root] or desk.touched[root] > 0:
        return taken
    front = 0
    node, link = root, ROOT
    while True:
        desk.order[taken], desk.link[node], desk.inside[node] = node, link, True
        taken += 1
        for h in range(field.half_start[node], field.half_start[node + 1]):
            desk.touched[field.other[h]] += 1
            desk.front[front] = h
            front += 1
        found = False
        while taken < most and front > 0 and not found:
            at = int(random.random() * front)
            h = desk.front[at]
            front -= 1
            desk.front[at] = desk.front[front]
            node, link = field.other[h], field.twin[h]
            found = not desk.inside[node] and desk.touched[node] == 1
        if not found:
            return taken


@internal
def clear(field: Field, desk: Desk, taken: int) -> None:
    """Takes the trees away."""
    for k in range(taken):
        node = desk.order[k]
        desk.inside[node] = False
        for h in range(field.half_start[node], field.half_start[node + 1]):
            desk.touched[field.other[h]] = 0


@internal
def choose(
    field: Field, desk: Desk, theta: Floats, choices: Ints, taken: int, heat: float, random: np.random.Generator
) -> int:
    """Fills in the trees' cheapest fresh choices beside the other nodes'; with heat, of costs a little disturbed.

    The work that it was, in table entries.
    """
    work = 0
    for k in range(taken):
        work += _gather(field, desk, theta, choices, desk.order[k])
        if heat > 0:
            node = desk.order[k]
            for i in range(field.choice_start[node], field.choice_start[node + 1]):
                desk.total[i] -= heat * math.log(1.0 - random.random())
    for k in range(taken - 1, -1, -1):
        if desk.link[desk.order[k]] != ROOT:
            work += _hang(field, desk, desk.order[k])
    for k in range(taken):
        _settle(field, desk, desk.order[k])
    return work


@internal
def _gather(field: Field, desk: Desk, theta: Floats, choices: Ints, node: int) -> int:
    """What the node's choices cost beside the nodes outside."""
    at, end = field.choice_start[node], field.choice_start[node + 1]
    desk.total[at:end] = theta[at:end]
    work = end - at
    for h in range(field.half_start[node], field.half_start[node + 1]):
        if not desk.inside[field.other[h]]:
            row = field.table_at[h] + choices[field.other[h]] * (end - at)
            for i in range(end - at):
                desk.total[at + i] += field.table[row + i]
            work += end - at
    return int(work)


@internal
def _hang(field: Field, desk: Desk, node: int) -> int:
    """Adds what the node and all that hangs on it costs at least to the choices of the node that it hangs on."""
    link = desk.link[node]
    at, count = field.choice_start[node], field.choice_start[node + 1] - field.choice_start[node]
    up = field.choice_start[field.other[link]]
    above = field.choice_start[field.other[link] + 1] - up
    for j in range(above):
        row = field.table_at[link] + j * count
        least = np.inf
        for i in range(count):
            least = min(least, desk.total[at + i] + field.table[row + i])
        desk.total[up + j] += least
    return int(count * above)


@internal
def _settle(field: Field, desk: Desk, node: int) -> None:
    """Makes the node's choice, given the one above it."""
    at, count = field.choice_start[node], field.choice_start[node + 1] - field.choice_start[node]
    link = desk.link[node]
    if link != ROOT:
        row = field.table_at[link] + desk.fresh[field.other[link]] * count
        for i in range(count):
            desk.total[at + i] += field.table[row + i]
    best = 0
    for i in range(1, count):
        if desk.total[at + i] < desk.total[at + best]:
            best = i
    desk.fresh[node] = best


@internal
def gain(field: Field, desk: Desk, costs: Floats, choices: Ints, taken: int) -> float:
    """What the fresh choices cost more than the present ones."""
    more = 0.0
    for k in range(taken):
        node = desk.order[k]
        at, count = field.choice_start[node], field.choice_start[node + 1] - field.choice_start[node]
        old, new = choices[node], desk.fresh[node]
        more += costs[at + new] - costs[at + old]
        for h in range(field.half_start[node], field.half_start[node + 1]):
            other = field.other[h]
            if h == desk.link[node]:
                of_new, of_old = desk.fresh[other], choices[other]
            elif desk.inside[other]:
                continue
            else:
                of_new = of_old = choices[other]
            row = field.table_at[h]
            more += field.table[row + of_new * count + new] - field.table[row + of_old * count + old]
    return more


@internal
def exchange(usage: Usage, desk: Desk, used: Ints, choices: Ints, taken: int, sign: int) -> None:
    """Takes what the present choices use, and adds what the fresh ones do; with sign -1 the other way round."""
    for k in range(taken):
        node = desk.order[k]
        if desk.fresh[node] != choices[node]:
            add_use(usage, used, node, choices[node], -sign)
            add_use(usage, used, node, desk.fresh[node], sign)


@internal
def within(usage: Usage, desk: Desk, used: Ints, choices: Ints, taken: int) -> bool:
    """Whether the limits hold where fresh choices use more than the present ones."""
    for k in range(taken):
        node = desk.order[k]
        if desk.fresh[node] == choices[node]:
            continue
        for p in range(usage.piece_start[node], usage.piece_start[node + 1]):
            at = usage.usage_start[p]
            if usage.usages[at + desk.fresh[node]] > usage.usages[at + choices[node]]:
                for row in range(usage.rows[p, 0], usage.rows[p, 1]):
                    if used[row] > usage.limits[row]:
                        return False
    return True
