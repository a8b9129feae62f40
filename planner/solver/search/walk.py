"""A walk from plan to plan: trees chosen anew, at random and cooling down; first of all into the limits.

Usage has its price while a tree is chosen, so that room goes where it saves most; the limits hold at every step. A walk
that starts beyond them raises the prices of the rows in question and never uses more of these than it did (as the
contest's winner relaxes memory by adaptive penalties).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..arrays import Flags, Floats, Ints
from ..bound.dual import Dual
from ..bound.field import Field, lay_out
from ..compiled import compiled
from ..cost import cost_of
from ..rows_used import Usage, priced, usage_of, used_by
from .ledger import Ledger
from .trees import Desk, choose, clear, exchange, gain, grow, new_desk, within

TREES = 3  # at most, at once
SIZES = (40, 60, 90, 200)  # nodes of all trees together
PARTS = (1.0, 1.0, 0.7, 0.3, 0.0)  # of the prices
STEPS = 500
HEAT = 0.3  # of the bound by node
FIRST_PRICE, DEARER, CHEAPER = 0.01, 1.3, 0.9  # of rows beyond their limits


class Walker:
    """Where a walk is: its choices, what they use, and the best that kept to the limits."""

    def __init__(self, dual: Dual, *, ledger: Ledger, seed: int) -> None:
        self.problem = dual.problem
        self.ledger = ledger
        self._random = np.random.default_rng(seed)
        self._usage = usage_of(dual.problem)
        self._prices = dual.prices
        self._unit = abs(dual.bound) / dual.problem.nodes
        self._field, self._costs = _finite(dual)
        self._desk = new_desk(self._field)
        self._start(_most_visited(dual))

    def _start(self, choices: Ints) -> None:
        self.choices = choices.copy()
        self._used = used_by(self._usage, choices)

    def repair(self) -> bool:
        """Walks into the limits, and off forbidden pairs. Whether it arrived before the ledger was exhausted."""
        limits = self.problem.limits
        extra = np.zeros(len(limits))
        using = self.problem.usages[self.problem.usages > 0]
        first = FIRST_PRICE * max(self._prices.max(initial=0.0), self._unit / (using.mean() if len(using) else 1.0))
        while not self.ledger.exhausted:
            beyond = self._used > limits
            if not beyond.any() and np.isfinite(cost_of(self.problem, self.choices)):
                return True
            extra = np.where(beyond, np.maximum(extra * DEARER, first), extra * CHEAPER)
            usage = self._usage._replace(limits=np.maximum(limits, self._used))
            self._walk(usage, self._prices + extra, SIZES[1], HEAT * self._unit)
        return False

    def anneal(
        self,
        choices: Ints,
        cost: float,
        heat: float,
        *,
        enough: Callable[[float], bool],
        found: Callable[[Ints, float], None],
    ) -> None:
        """Walks from these choices, ever cooler, until the ledger is exhausted or a cost is ``enough``.

        Each improvement is handed to ``found``.
        """
        self._start(choices)
        whole, turn = self.ledger.left, 0
        while not self.ledger.exhausted and not enough(cost):
            now = heat * self._unit * (self.ledger.left / whole) ** 2
            prices = PARTS[turn % len(PARTS)] * self._prices
            best = self._walk(self._usage, prices, SIZES[turn % len(SIZES)], now)
            best_cost = cost_of(self.problem, best)
            if best_cost < cost:
                cost = best_cost
                found(best, cost)
            turn += 1

    def _walk(self, usage: Usage, prices: Floats, size: int, heat: float) -> Ints:
        theta = priced(usage, self._costs, prices)
        work, best = walk(
            self._field,
            usage,
            self._costs,
            theta,
            self._desk,
            self.choices,
            self._used,
            self._random,
            STEPS,
            size,
            heat,
            self.ledger.halt,
        )
        self.ledger.left -= work
        return best


def _finite(dual: Dual) -> tuple[Field, Floats]:
    """The field and the costs with so high a cost in place of infinite ones that nothing makes up for one."""
    problem, field = dual.problem, lay_out(dual.problem)
    every = np.abs(np.concatenate((problem.costs, problem.tables)))
    high = max(abs(dual.bound), float(every[np.isfinite(every)].max(initial=0.0)), 1.0)
    costs = np.where(np.isfinite(problem.costs), problem.costs, high)
    return field._replace(table=np.where(np.isfinite(field.table), field.table, high)), costs


def _most_visited(dual: Dual) -> Ints:
    """The choice of each node that the climb's passes made most often."""
    start = dual.problem.choice_start
    most = np.maximum.reduceat(dual.visits, start[:-1])
    is_most = np.flatnonzero(dual.visits == np.repeat(most, dual.problem.counts))
    return is_most[np.searchsorted(is_most, start[:-1])] - start[:-1]


@compiled
def walk(
    field: Field,
    usage: Usage,
    costs: Floats,
    theta: Floats,
    desk: Desk,
    choices: Ints,
    used: Ints,
    random: np.random.Generator,
    steps: int,
    size: int,
    heat: float,
    halt: Flags,
) -> tuple[int, Ints]:
    """Takes steps from the choices, which it changes with what is used. Its work in table entries; the cheapest met.

    A step is taken if it gains at the prices in ``theta``, or by chance if it loses little beside the heat.
    """
    work = 0
    now = least = 0.0
    best = choices.copy()
    for _ in range(steps):
        if halt[0]:
            break
        taken, trees = 0, 1 + int(random.random() * TREES)
        for _ in range(trees):
            root = int(random.random() * len(choices))
            taken = grow(field, desk, root, taken, min(taken + max(1, size // trees), len(choices)), random)
        work += choose(field, desk, theta, choices, taken, heat, random)
        luck = -heat * math.log(1.0 - random.random())
        if gain(field, desk, theta, choices, taken) <= luck:
            exchange(usage, desk, used, choices, taken, 1)
            if within(usage, desk, used, choices, taken):
                now += gain(field, desk, costs, choices, taken)
                for k in range(taken):
                    choices[desk.order[k]] = desk.fresh[desk.order[k]]
                if now < least:
                    least = now
                    best = choices.copy()
            else:
                exchange(usage, desk, used, choices, taken, -1)
        clear(field, desk, taken)
    return work, best
