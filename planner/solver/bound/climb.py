"""The dual climb: message passing and steps of the rows' prices in turn, keeping the best bound and solution met."""

from __future__ import annotations

import numpy as np

from ..arrays import Flags, Floats, Ints
from ..compiled import compiled
from ..rows_used import Usage, priced, used_by
from .decode import decode
from .field import Field
from .messages import sweep

PATIENCE = 10
SETTLE = 20
MEMORY = 0.7


@compiled
def climb(
    field: Field,
    usage: Usage,
    costs: Floats,
    prices: Floats,
    messages: Floats,
    part: float,
    target: float,
    sweeps: int,
    every: int,
    halt: Flags,
) -> tuple[float, Floats, Floats, float, Ints, Floats]:
    """Climbs for a number of double sweeps. The best bound, its prices, messages; the best solution, its cost; visits.

    Prices step along a running mean of what the rows are over their limits, by a shrinking ``part`` of the way to the
    ``target`` bound (Polyak 1969; Camerini, Fratta, Maffioli 1975). Every ``every`` sweeps a solution is decoded. Ends
    early once ``halt`` is set, which another thread may do.
    """
    choices = np.zeros(len(field.backward), np.int64)
    best, best_prices, best_messages = -np.inf, prices.copy(), messages.copy()
    messages = messages.copy()
    cost, solution = np.inf, choices.copy()
    theta = priced(usage, costs, prices)
    course = np.zeros(len(prices))
    waited = 0
    limits = usage.limits.astype(np.float64)
    visits = np.zeros(len(costs))
    for k in range(sweeps):
        sweep(field, theta, messages, True, choices)
        bound = sweep(field, theta, messages, False, choices) - (prices * limits).sum()
        goal = min(target, cost)
        if goal == np.inf:
            goal = max(best, bound) + 0.05 * abs(max(best, bound)) + 1.0
        if bound > best:
            waited = 0 if bound > best + 1e-5 * (goal - best) else waited + 1
            best, best_prices, best_messages = bound, prices.copy(), messages.copy()
        else:
            waited += 1
        if waited > PATIENCE:
            part *= 0.7
            waited = 0
        if k % every == every - 1:
            for forward in (True, False):
                found, priced_cost, good = decode(field, usage, theta, messages, forward)
                if good:
                    spent = priced_cost - (prices * used_by(usage, found)).sum()
                    if spent < cost:
                        cost, solution = spent, found
        visits *= 0.98
        for node in range(len(choices)):
            visits[field.choice_start[node] + choices[node]] += 0.02
        if part < 1e-4 or best >= min(target, cost) or halt[0]:
            break
        if len(prices) == 0:
            if k > SETTLE and waited == PATIENCE:
                break
            continue
        if k % 30 == 29 and bound < best - 0.3 * (goal - best):
            prices, messages = best_prices.copy(), best_messages.copy()
        over = (used_by(usage, choices) - usage.limits).astype(np.float64)
        course = MEMORY * course + (1.0 - MEMORY) * over
        if k > SETTLE:
            prices = _stepped(prices, course, part * max(goal - bound, 1e-4 * abs(goal)))
            theta = priced(usage, costs, prices)
    return best, best_prices, best_messages, cost, solution, visits


@compiled
def _stepped(prices: Floats, course: Floats, gain: float) -> Floats:
    """The prices moved along the course so that the bound would gain this much if it were linear."""
    length = 0.0
    for row in range(len(prices)):
        if prices[row] > 0 or course[row] > 0:
            length += course[row] * course[row]
    if length == 0:
        return prices
    return np.maximum(0.0, prices + gain / length * course)
