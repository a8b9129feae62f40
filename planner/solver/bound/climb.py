"""The dual climb: message passing and steps of the rows' prices in turn, keeping the best bound and solution met."""

from __future__ import annotations

import numpy as np

from ..arrays import Flags, Floats, Ints
from ..compiled import compiled, internal
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
    visits = np.zeros(len(costs))
    for k in range(sweeps):
        for forward in (True, False):
            bound = sweep(field, theta, messages, forward, choices)
        bound -= _paid(prices, usage.limits)
        goal = _goal(min(target, cost), max(best, bound))
        waited = 0 if bound > best + 1e-5 * (goal - best) else waited + 1
        if bound > best:
            best, best_prices, best_messages = bound, prices.copy(), messages.copy()
        if waited > PATIENCE:
            part *= 0.7
            waited = 0
        if k % every == every - 1:
            cost, solution = _decoded(field, usage, theta, prices, messages, cost, solution)
        _visit(field, choices, visits)
        settled = len(prices) == 0 and k > SETTLE and waited == PATIENCE
        if settled or part < 1e-4 or best >= min(target, cost) or halt[0]:
            break
        if k % 30 == 29 and bound < best - 0.3 * (goal - best):
            prices, messages = best_prices.copy(), best_messages.copy()
        _turn(course, used_by(usage, choices), usage.limits)
        if k > SETTLE and len(prices):
            prices = _stepped(prices, course, part * max(goal - bound, 1e-4 * abs(goal)))
            theta = priced(usage, costs, prices)
    return best, best_prices, best_messages, cost, solution, visits


@internal
def _goal(known: float, bound: float) -> float:
    """The bound to aim at: what is known, else a little above the bound."""
    return known if known < np.inf else bound + 0.05 * abs(bound) + 1.0


@internal
def _decoded(
    field: Field, usage: Usage, theta: Floats, prices: Floats, messages: Floats, cost: float, solution: Ints
) -> tuple[float, Ints]:
    """The cheapest of two solutions decoded and the one at hand."""
    for forward in (True, False):
        found, priced_cost, good = decode(field, usage, theta, messages, forward)
        if good:
            spent = priced_cost - _paid(prices, used_by(usage, found))
            if spent < cost:
                cost, solution = spent, found
    return cost, solution


@internal
def _stepped(prices: Floats, course: Floats, gain: float) -> Floats:
    """The prices moved along the course so that the bound would gain this much if it were linear."""
    length = 0.0
    for row in range(len(prices)):
        if prices[row] > 0 or course[row] > 0:
            length += course[row] * course[row]
    if length == 0:
        return prices
    stepped = prices.copy()
    for row in range(len(prices)):
        stepped[row] = max(0.0, prices[row] + gain / length * course[row])
    return stepped


@internal
def _turn(course: Floats, used: Ints, limits: Ints) -> None:
    """Turns the course towards what the rows are now over their limits."""
    for row in range(len(course)):
        course[row] = MEMORY * course[row] + (1.0 - MEMORY) * (used[row] - limits[row])


@internal
def _visit(field: Field, choices: Ints, visits: Floats) -> None:
    """Counts the choices just made; what was long ago fades."""
    for i in range(len(visits)):
        visits[i] *= 0.98
    for node in range(len(choices)):
        visits[field.choice_start[node] + choices[node]] += 0.02


@internal
def _paid(prices: Floats, rows: Ints) -> float:
    """What so much of each row costs."""
    total = 0.0
    for row in range(len(prices)):
        total += prices[row] * rows[row]
    return total
