"""Every solution of a problem that costs less than so much, where these are few."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .arrays import Flags, Floats, Ints
from .bound.dual import Dual, climb_dual
from .bound.field import Field, lay_out
from .every import within
from .problem import Problem

MOST_AT_ONCE = 4_000_000
"""So many choices of a next node are looked at together."""
BEYOND = 16.0
"""Times the cutoff what is forbidden costs."""
ROUNDED = 1e-9
"""What part of the cutoff adding up may have rounded off."""


def below(problem: Problem, cutoff: float, most: int, halt: Flags) -> tuple[Ints, Floats] | None:
    """The choices of each solution within the limits that costs less than ``cutoff`` (solutions x nodes), and what it
    costs; those that cost least come first. None where more than ``most`` are begun that may.

    A climb says what each choice and each pair costs at least above the bound. Nodes are then decided one by one, those
    that hang on others after these, as long as what is decided leaves a solution below the cutoff.
    """
    most_cost = BEYOND * abs(cutoff)  # messages carry no infinity on
    costs, tables = (np.minimum(each, most_cost) for each in (problem.costs, problem.tables))
    dual = climb_dual(replace(problem, costs=costs, tables=tables), halt=halt, target=cutoff)
    gap = cutoff - dual.bound + ROUNDED * abs(cutoff)
    if dual.bound >= cutoff:
        return np.empty((0, problem.nodes), np.int64), np.empty(0)
    if not np.isfinite(gap):
        return None
    excess = _Excess(dual, gap)
    begun, above, order = np.zeros((1, 0), np.int64), np.zeros(1), excess.order
    for place, node in enumerate(order):
        own = excess.own(node)
        if len(above) * len(own) > MOST_AT_ONCE or halt[0]:
            return None
        more = above[:, None] + own[None, :]
        for earlier, table in excess.tables(node, order[:place]):
            more += table[begun[:, earlier]]
        kept, choices = np.nonzero(more <= gap)
        if len(kept) > most:
            return None
        begun, above = np.column_stack((begun[kept], choices)), more[kept, choices]
    found = np.empty((len(begun), problem.nodes), np.int64)
    found[:, order] = begun
    found = found[within(problem, found.T)]
    cost = _costs(problem, found)
    found, cost = found[cost < cutoff], cost[cost < cutoff]
    by_cost = np.argsort(cost, kind="stable")
    return found[by_cost], cost[by_cost]


class _Excess:
    """What choices and pairs cost above their least, as a dual reparametrises them; infinite beyond a ``gap``."""

    def __init__(self, dual: Dual, gap: float) -> None:
        self._problem, self._field = dual.problem, lay_out(dual.problem)
        self._messages, theta = dual.messages, dual.theta()
        least, _ = dual.excesses()
        self._own: list[Floats] = []
        self._halves: list[dict[int, int]] = []
        for node in range(dual.problem.nodes):
            begin, end = dual.problem.choice_start[node], dual.problem.choice_start[node + 1]
            halves = range(self._field.half_start[node], self._field.half_start[node + 1])
            cost = theta[begin:end] + sum((self._message(half) for half in halves), np.zeros(end - begin))
            self._own.append(np.where(least[begin:end] > gap, np.inf, cost - cost.min()))
            self._halves.append({int(self._field.other[half]): half for half in halves})

    @property
    def order(self) -> list[int]:
        """The nodes, those first that have fewest choices left, then those that most of these decide."""
        left, found = set(range(len(self._own))), list[int]()
        while left:
            node = max(
                left, key=lambda n: (len(self._halves[n].keys() & {*found}), -np.isfinite(self._own[n]).sum(), -n)
            )
            left.remove(node)
            found.append(node)
        return found

    def own(self, node: int) -> Floats:
        """What each choice of a node costs above the least."""
        return self._own[node]

    def tables(self, node: int, before: list[int]) -> list[tuple[int, Floats]]:
        """What each pair with a node that is decided costs above the least, by that node's place among those."""
        field: Field = self._field
        found = []
        for place, other in enumerate(before):
            half = self._halves[node].get(other)
            if half is None:
                continue
            mine, theirs = self._message(half), self._message(int(field.twin[half]))
            begin = field.table_at[half]
            table = field.table[begin : begin + len(mine) * len(theirs)].reshape(len(theirs), len(mine))
            pairs = table - theirs[:, None] - mine[None, :]
            found.append((place, pairs - pairs.min()))
        return found

    def _message(self, half: int) -> NDArray[np.float64]:
        return self._messages[self._field.message_at[half] : self._field.message_at[half + 1]]


def _costs(problem: Problem, choices: Ints) -> Floats:
    """What solutions cost."""
    counts, cost = problem.counts, np.full(len(choices), problem.constant_cost)
    for node, begin in enumerate(problem.choice_start[:-1]):
        cost += problem.costs[begin + choices[:, node]]
    for (a, b), begin in zip(problem.ends, problem.table_start[:-1], strict=True):
        cost += problem.tables[begin + choices[:, a] * counts[b] + choices[:, b]]
    return cost
