"""The solver: reduce, climb, walk, hunt below ever higher cutoffs, improve by neighbourhoods, until all is proven.

The cheapest solution of a problem is the cheapest below a cutoff, if there is one there. A low cutoff lets the bound
fix nearly everything, so that the search below it is short; where it finds nothing the cutoff has become the bound.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from .bound.dual import Dual, climb_dual
from .clock import Clock
from .cost import cost_of
from .incumbent import Incumbent
from .problem import Problem
from .reduce.pipeline import reduce
from .search.improve import improve
from .search.ledger import Ledger
from .search.tree import hunt
from .search.walk import HEAT, Walker
from .solution import Solution, Stage

FIRST_SWEEPS, MORE_SWEEPS, RISE = 500, 250, 1e-4
CLIMBS = 6  # at most, of the whole problem at the start
CUTOFFS = (1e-4, 1e-3, 3e-3, 1e-2, 2e-2, 4e-2, 8e-2, 0.15, 0.3, 0.6, np.inf)  # above the bound, as parts of it
LARGE, LARGE_SWEEPS, LARGE_SHARE = 2000, 250, 0.5  # nodes; a climb; of the work for neighbourhoods
LARGE_PART, LAST_PART = 0.1, 0.01  # of the way to the target, for later climbs
FIRST_WALK = 0.3  # of a walk's work, to know what to climb towards
SMALL_GAP, LATE = 0.02, 8  # large problems are hunted in once the gap is small, or after so much work
HUNT_WORK, WALK_WORK, ROUND_WORK = 2e9, 1.5e9, 4e9  # table entries: a few seconds; all double with every round


def solve(
    problem: Problem,
    *,
    time_limit_s: float = 60.0,
    seed: int = 0,
    bound_only: bool = False,
    effort: float | None = None,
    until_found: bool = False,
    below: float = np.inf,
    on_stage: Callable[[Stage], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Solution:
    """The cheapest choices within the limits that are found in the time, and a bound on the cheapest there are.

    Only what costs less than ``below`` is looked for: where nothing does, there are no choices and the bound says so.
    With an ``effort`` the search ends after that part of a first round, proven or not; ``until_found`` not before there
    are choices, and in problems of thousands of nodes as if there were no ``effort``. ``stop`` is asked some times a
    second whether to end early. What is found is the same for the same seed as far as the search got: all work is
    counted, the clock only ends it.
    """
    with Clock(time_limit_s, stop) as clock:
        state = Incumbent(problem=problem, clock=clock, on_stage=on_stage, below=below)
        reduction = reduce(problem, halt=clock.halt)
        if reduction.problem is None:
            return state.infeasible()
        state.reduced(reduction)
        if not state.ended():
            search = _Search(seed=seed, effort=effort, until_found=until_found, bound_only=bound_only)
            _solve_core(state, reduction.problem, search)
        return state.solution()


class _Search(NamedTuple):
    """How ``solve`` is to search."""

    seed: int
    effort: float | None
    until_found: bool
    bound_only: bool


def _solve_core(state: Incumbent, core: Problem, search: _Search) -> None:
    """Climbs, then searches."""
    large = core.nodes > LARGE
    dual = climb_dual(core, halt=state.clock.halt, target=state.below, sweeps=LARGE_SWEEPS if large else FIRST_SWEEPS)
    state.learn(dual)
    if large and not search.bound_only and (search.effort is None or search.until_found):
        _search_large(state, dual, search.seed)
        return
    dual = _climb(state, dual)
    if not search.bound_only and not state.ended():
        _search(state, dual, search)


def _climb(state: Incumbent, dual: Dual) -> Dual:
    """Climbs again from the best prices while that raises the bound."""
    for _ in range(CLIMBS):
        if state.ended():
            break
        before = dual.bound
        dual = _climb_on(state, dual)
        if dual.bound - before < RISE * abs(before):
            break
    state.end_stage("bound", dual.problem)
    return dual


def _climb_on(state: Incumbent, dual: Dual, sweeps: int = MORE_SWEEPS, part: float | None = None) -> Dual:
    """Climbs from where a climb ended; the better of the two."""
    if not len(dual.prices):
        return dual
    again = climb_dual(
        dual.problem,
        halt=state.clock.halt,
        prices=dual.prices,
        messages=dual.messages,
        target=state.ceiling,
        sweeps=sweeps,
        part=part,
    )
    state.learn(again)
    return again if again.bound > dual.bound else dual


def _search(state: Incumbent, dual: Dual, search: _Search) -> None:
    """Hunts below cutoffs and improves by neighbourhoods in turn, with more work every time.

    With an ``effort`` it does so once, or until it has found something.
    """
    if search.effort is not None:
        _hunt(state, dual, search.effort)
        if search.until_found and np.isfinite(state.cost) and not state.ended():
            _improve(state, dual, search.seed, search.effort)
    work = 1
    while not state.ended() and (search.effort is None or (search.until_found and not np.isfinite(state.cost))):
        _hunt(state, dual, work)
        if np.isfinite(state.cost) and not state.ended():
            _improve(state, dual, search.seed + work, work)
        if not state.ended():
            dual = _climb_on(state, dual)
        work *= 2


def _search_large(state: Incumbent, dual: Dual, seed: int) -> None:
    """Walks a little, then climbs towards the best, walks, improves by neighbourhoods, with more work every time.

    Hunts come last, where the gap is small or nothing was found: they are long in a large problem.
    """
    state.end_stage("bound", dual.problem)
    _walk(state, dual, seed, FIRST_WALK)
    work, part = 1, LARGE_PART
    while not state.ended():
        dual = _climb_on(state, dual, 2 * LARGE_SWEEPS, part)
        state.end_stage("bound", dual.problem)
        if not state.ended():
            _walk(state, dual, seed + work, work)
        if np.isfinite(state.cost) and not state.ended():
            _improve(state, dual, seed + work, LARGE_SHARE * work)
        near = state.cost - state.bound < SMALL_GAP * abs(state.cost) or work >= LATE
        if (near or not np.isfinite(state.cost)) and not state.ended():
            _hunt(state, dual, work)
        work, part = 2 * work, max(part / 2, LAST_PART)


def _walk(state: Incumbent, dual: Dual, seed: int, work: float) -> None:
    """Walks from the best solution, or from none into the limits."""
    ledger = Ledger(halt=state.clock.halt, step=state.step, left=work * WALK_WORK)
    walker = Walker(dual, ledger=ledger, seed=seed)
    if not np.isfinite(state.cost) and walker.repair():
        state.offer(walker.choices.copy(), cost_of(dual.problem, walker.choices))
    if np.isfinite(state.cost):
        walker.anneal(state.core_choices, state.cost, HEAT / max(work, 1), enough=state.is_enough, found=state.offer)
    state.end_stage("walk", dual.problem)


def _hunt(state: Incumbent, dual: Dual, work: float) -> None:
    """Hunts below one cutoff after the other, until one is too much work."""
    base = dual.bound
    ledger = Ledger(halt=state.clock.halt, step=state.step, left=work * HUNT_WORK)
    for part in CUTOFFS:
        cutoff = state.rounded(min(base + part * max(abs(base), 1.0), state.ceiling - state.step))
        if cutoff < state.bound:
            continue
        found = hunt(dual.fixed(cutoff), cutoff, ledger, dual.prices)
        state.offer(found.choices, found.cost)
        if found.closed:
            state.raise_bound(min(cutoff + state.step, state.ceiling))
        if state.ended() or not found.closed:
            break
    state.end_stage("hunt", dual.problem)


def _improve(state: Incumbent, dual: Dual, seed: int, work: float) -> None:
    """Improves by neighbourhoods."""
    ledger = Ledger(halt=state.clock.halt, step=state.step, left=work * ROUND_WORK)
    improve(
        dual,
        state.core_choices,
        state.cost,
        ledger=ledger,
        seed=seed,
        enough=state.is_enough,
        found=state.offer,
    )
    state.end_stage("improve", dual.problem)
