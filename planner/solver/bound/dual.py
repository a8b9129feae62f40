"""The dual climb on a problem: a bound, the prices behind it, the best solution met, what can be fixed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..arrays import Flags, Floats, Ints
from ..cost import cost_of
from ..problem import Problem
from ..rows_used import Usage, priced, usage_of
from .climb import climb
from .field import Field, lay_out
from .fixing import excesses, without

FIRST_PART, AGAIN_PART = 0.3, 0.05  # of the way to the target that a step may promise
ROUNDING = 2.0**-44  # of the largest sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Dual:
    """Where a climb ended."""

    problem: Problem
    bound: float  # no solution costs less
    prices: Floats  # rows
    messages: Floats
    cost: float  # infinite where no solution was met
    choices: Ints
    visits: Floats  # of every node's choices: how often passes chose it of late

    def excesses(self) -> tuple[Floats, Floats]:
        """By how much each choice and each pair raises the bound at least."""
        choice, pair, _ = excesses(lay_out(self.problem), self.theta(), self.messages)
        return choice, pair

    def theta(self) -> Floats:
        """The choices' costs at the rows' prices."""
        return priced(usage_of(self.problem), self.problem.costs, self.prices)

    def fixed(self, cutoff: float) -> Problem:
        """The problem without the choices and pairs that only solutions above ``cutoff`` take."""
        choice, pair = self.excesses()
        return without(self.problem, choice, pair, cutoff - self.bound)


def climb_dual(
    problem: Problem,
    *,
    halt: Flags,
    prices: Floats | None = None,
    messages: Floats | None = None,
    target: float = np.inf,
    sweeps: int = 300,
    part: float | None = None,
    decode_every: int = 5,
) -> Dual:
    """Climbs for at most ``sweeps`` double passes towards the bound ``target``, or until ``halt`` is set.

    It begins at these prices and messages (default: none). ``part`` of the way to the target is what its first step may
    promise (default: a large one without prices, a small one from prices).

    The bound is lowered by what adding up may have rounded off.
    """
    field, usage = lay_out(problem), usage_of(problem)
    if part is None:
        part = FIRST_PART if prices is None else AGAIN_PART
    _, at, ended, cost, choices, visits = climb(
        field,
        usage,
        problem.costs,
        np.zeros(len(problem.limits)) if prices is None else prices,
        np.zeros(field.message_at[-1]) if messages is None else messages,
        part,
        target - problem.constant_cost,
        sweeps,
        decode_every,
        halt,
    )
    return Dual(
        problem=problem,
        bound=_bound(field, usage, problem, at, ended),
        prices=at,
        messages=ended,
        cost=cost_of(problem, choices) if np.isfinite(cost) else np.inf,
        choices=choices,
        visits=visits,
    )


def _bound(field: Field, usage: Usage, problem: Problem, prices: Floats, messages: Floats) -> float:
    """The bound of messages and prices, computed afresh and rounded down."""
    _, _, least = excesses(field, priced(usage, problem.costs, prices), messages)
    paid = float(prices @ problem.limits)
    scale = abs(least) + abs(paid) + abs(problem.constant_cost) + float(np.abs(messages).max(initial=0.0))
    return least - paid + problem.constant_cost - ROUNDING * scale
