"""Large-neighbourhood search: choose some nodes anew, the others as they are, and keep what is cheaper (Shaw 1998)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..arrays import Flags, Floats, Ints
from ..bound.dual import Dual
from ..bound.field import Field, lay_out
from ..problem import Problem
from ..rows_used import Usage, usage_of, used_by
from .ledger import Ledger
from .neighbourhood import ball, restrict, users
from .tree import hunt

FIRST_SIZE, SMALLEST = 60.0, 12.0
GROW, SHRINK = 1.15, 0.85
WORK = 5e7  # for one neighbourhood


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    problem: Problem
    field: Field
    usage: Usage
    prices: Floats
    doubt: Floats  # of every node's choices: what taking it adds to the bound


def improve(
    dual: Dual,
    choices: Ints,
    cost: float,
    *,
    ledger: Ledger,
    seed: int,
    enough: Callable[[float], bool],
    found: Callable[[Ints, float], None],
) -> None:
    """Looks for cheaper choices around these until the ledger is exhausted or a cost is ``enough``.

    Each improvement is handed to ``found``.
    """
    problem = dual.problem
    setting = _Setting(
        problem=problem,
        field=lay_out(problem),
        usage=usage_of(problem),
        prices=dual.prices,
        doubt=dual.excesses()[0],
    )
    random = np.random.default_rng(seed)
    size = FIRST_SIZE
    while not ledger.exhausted and not enough(cost):
        free = _neighbourhood(setting, choices, int(size), random)
        inner = ledger.part(WORK)
        better = hunt(restrict(problem, choices, free), cost - ledger.step, inner, setting.prices)
        ledger.left -= WORK - inner.left
        if better.choices is not None:
            choices = choices.copy()
            choices[free] = better.choices
            cost = better.cost
            found(choices, cost)
        size = min(size * GROW, 1.0 * problem.nodes) if better.closed else max(size * SHRINK, SMALLEST)


def _neighbourhood(setting: _Setting, choices: Ints, size: int, random: np.random.Generator) -> Flags:
    """A ball round a node of doubtful choice, or nodes that share a tight row with balls round them."""
    size = max(2, min(size, setting.problem.nodes))
    kind = random.integers(3)
    if kind == 0 and len(setting.problem.limits):
        return _sharers(setting, choices, size, random)
    doubt = setting.doubt[setting.problem.choice_start[:-1] + choices]
    weight = doubt / doubt.sum() if kind == 1 and doubt.sum() > 0 else None
    centre = int(random.choice(setting.problem.nodes, p=weight))
    return ball(setting.field.half_start, setting.field.other, centre, size)


def _sharers(setting: _Setting, choices: Ints, size: int, random: np.random.Generator) -> Flags:
    limits = np.maximum(setting.usage.limits, 1)
    tight = used_by(setting.usage, choices) / limits + (setting.prices > 0)
    row = int(random.choice(np.flatnonzero(tight >= np.quantile(tight, 0.9))))
    of_row = users(setting.usage, row)
    free = np.zeros(setting.problem.nodes, np.bool_)
    some = random.permutation(of_row)[: max(2, size // 4)]
    for node in some:
        free |= ball(setting.field.half_start, setting.field.other, int(node), max(1, size // max(1, len(some))))
    return free
