"""What choices use on each row, and whether a node may change its choice."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from .arrays import Floats, Ints
from .compiled import compiled, internal
from .problem import Problem


class Usage(NamedTuple):
    """The pieces of a problem, by node."""

    choice_start: Ints
    piece_start: Ints  # nodes + 1
    rows: Ints  # pieces x 2
    usage_start: Ints  # pieces
    usages: Ints
    limits: Ints


def usage_of(problem: Problem) -> Usage:
    """The usage of a problem whose pieces are sorted by node, as reductions leave them."""
    order = np.argsort(problem.piece_nodes, kind="stable")
    return Usage(
        choice_start=problem.choice_start,
        piece_start=np.searchsorted(problem.piece_nodes[order], np.arange(problem.nodes + 1)),
        rows=problem.piece_rows[order],
        usage_start=problem.usage_start[:-1][order],
        usages=problem.usages,
        limits=problem.limits,
    )


@compiled
def used_by(usage: Usage, choices: Ints) -> Ints:
    """What the choices use on each row."""
    change = np.zeros(len(usage.limits) + 1, np.int64)
    for node in range(len(choices)):
        for p in range(usage.piece_start[node], usage.piece_start[node + 1]):
            amount = usage.usages[usage.usage_start[p] + choices[node]]
            change[usage.rows[p, 0]] += amount
            change[usage.rows[p, 1]] -= amount
    for row in range(1, len(change)):
        change[row] += change[row - 1]
    return change[:-1]


@internal
def add_use(usage: Usage, used: Ints, node: int, choice: int, sign: int) -> None:
    """Adds (or, with sign -1, takes away) what one choice uses."""
    for p in range(usage.piece_start[node], usage.piece_start[node + 1]):
        amount = sign * usage.usages[usage.usage_start[p] + choice]
        if amount != 0:
            for row in range(usage.rows[p, 0], usage.rows[p, 1]):
                used[row] += amount


@internal
def fits(usage: Usage, used: Ints, node: int, choice: int) -> bool:
    """Whether the choice stays within the limits beside what is used already."""
    for p in range(usage.piece_start[node], usage.piece_start[node + 1]):
        amount = usage.usages[usage.usage_start[p] + choice]
        if amount > 0:
            for row in range(usage.rows[p, 0], usage.rows[p, 1]):
                if used[row] + amount > usage.limits[row]:
                    return False
    return True


@compiled
def priced(usage: Usage, costs: Floats, prices: Floats) -> Floats:
    """The costs of choices with what they use at the rows' prices."""
    total = costs.copy()
    upto = np.zeros(len(prices) + 1)
    for row in range(len(prices)):
        upto[row + 1] = upto[row] + prices[row]
    for node in range(len(usage.piece_start) - 1):
        first = usage.choice_start[node]
        count = usage.choice_start[node + 1] - first
        for p in range(usage.piece_start[node], usage.piece_start[node + 1]):
            price = upto[usage.rows[p, 1]] - upto[usage.rows[p, 0]]
            if price > 0:
                for i in range(count):
                    total[first + i] += price * usage.usages[usage.usage_start[p] + i]
    return total
