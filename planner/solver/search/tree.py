"""Branch and bound: reduce, climb, fix, reduce, until a problem falls apart; else split one node's choices."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Flags, Floats, Ints
from ..bound.dual import Dual, climb_dual
from ..problem import Problem
from ..reduce.pipeline import Reduction, reduce
from ..rows_used import priced, usage_of
from .ledger import Ledger

ROOT_SWEEPS = 400
CHILD_SWEEPS = 120
WORTH = 0.9  # fix and reduce again where that leaves at most this part


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best solution of at most the cutoff (None: none met), and whether it is known that none is better."""

    choices: Ints | None
    cost: float
    closed: bool


NOTHING = Found(choices=None, cost=np.inf, closed=True)
UNKNOWN = Found(choices=None, cost=np.inf, closed=False)


def hunt(problem: Problem, cutoff: float, ledger: Ledger, prices: Floats | None = None) -> Found:
    """Searches for the cheapest solution that costs at most ``cutoff``."""
    reduction = reduce(problem, halt=ledger.halt)
    small = reduction.problem
    if small is None:
        return NOTHING
    if small.nodes == 0:
        return _only(reduction, small, cutoff)
    if ledger.exhausted:
        return UNKNOWN
    start = None if prices is None else reduction.prices(prices)
    sweeps = ROOT_SWEEPS if prices is None else CHILD_SWEEPS
    ledger.charge(small, sweeps)
    dual = climb_dual(small, halt=ledger.halt, prices=start, target=cutoff, sweeps=sweeps)
    best = UNKNOWN
    if dual.cost <= cutoff:
        best = Found(choices=dual.choices, cost=dual.cost, closed=False)
    limit = min(cutoff, dual.cost - ledger.step)
    rest = NOTHING if dual.bound > limit else _rest(dual, limit, ledger)
    return _lifted(reduction, _better(best, rest))


def _only(reduction: Reduction, small: Problem, cutoff: float) -> Found:
    if small.constant_cost > cutoff:
        return NOTHING
    return Found(choices=reduction.choices(np.zeros(0, np.int64)), cost=small.constant_cost, closed=True)


def _better(a: Found, b: Found) -> Found:
    """The cheaper; closed as ``b``, the last word, is."""
    return replace(a if a.cost <= b.cost else b, closed=b.closed)


def _lifted(reduction: Reduction, found: Found) -> Found:
    return found if found.choices is None else replace(found, choices=reduction.choices(found.choices))


def _rest(dual: Dual, cutoff: float, ledger: Ledger) -> Found:
    """What is left below the cutoff once fixed: climbed again where much went, else split."""
    fixed = dual.fixed(cutoff)
    if _entries(fixed) <= WORTH * _entries(dual.problem):
        return hunt(fixed, cutoff, ledger, dual.prices)
    return _split(replace(dual, problem=fixed), cutoff, ledger)


def _entries(problem: Problem) -> int:
    return int(np.isfinite(problem.costs).sum() + np.isfinite(problem.tables).sum())


def _split(dual: Dual, cutoff: float, ledger: Ledger) -> Found:
    """Both halves of one node's choices, the one that passes chose more often first."""
    best = NOTHING
    closed = True
    for half in halves(dual):
        child = replace(dual.problem, costs=np.where(half, dual.problem.costs, np.inf))
        found = hunt(child, min(cutoff, best.cost - ledger.step), ledger, dual.prices)
        closed = closed and found.closed
        best = found if found.cost < best.cost else best
    return replace(best, closed=closed)


def halves(dual: Dual) -> tuple[Flags, Flags]:
    """Two sets of choices that split the choices of the node whose passes agree least, by what they use or cost."""
    problem = dual.problem
    pay = priced(usage_of(problem), np.zeros(len(problem.costs)), dual.prices)
    node = _node_to_split(problem, pay, dual.visits)
    first, end = problem.choice_start[node], problem.choice_start[node + 1]
    allowed = np.isfinite(problem.costs[first:end])
    low = _low_half(pay[first:end], dual.visits[first:end], allowed)
    here, there = np.ones(len(problem.costs), np.bool_), np.ones(len(problem.costs), np.bool_)
    here[first:end], there[first:end] = low, allowed & ~low
    lighter = dual.visits[first:end][low].sum() >= dual.visits[first:end][~low].sum()
    return (here, there) if lighter else (there, here)


def _node_to_split(problem: Problem, pay: Floats, visits: Floats) -> int:
    """The node whose payment for usage varies most over the passes; without any, the one they agree on least."""
    at = problem.choice_start[:-1]
    weight = np.maximum(np.add.reduceat(visits, at), 1e-9)
    mean = np.add.reduceat(visits * pay, at) / weight
    spread = np.add.reduceat(visits * np.abs(pay - np.repeat(mean, problem.counts)), at)
    allowed = np.add.reduceat(np.isfinite(problem.costs).astype(np.int64), at) > 1
    if np.any(allowed & (spread > 1e-6 * (np.abs(pay).max(initial=0.0) + 1e-300))):
        return int(np.argmax(np.where(allowed, spread, -1.0)))
    doubt = weight - np.maximum.reduceat(visits, at)
    return int(np.argmax(np.where(allowed, doubt, -1.0)))


def _low_half(pay: Floats, visits: Floats, allowed: Flags) -> Flags:
    """The choices that pay at most the visited mean; where all pay alike, the one visited most."""
    weight = visits[allowed].sum()
    mean = (visits * pay)[allowed].sum() / weight if weight > 0 else pay[allowed].mean()
    low: Flags = allowed & (pay <= mean)
    if low.sum() in (0, allowed.sum()):
        low = np.zeros(len(pay), np.bool_)
        low[int(np.argmax(np.where(allowed, visits, -1.0)))] = True
    return low
