"""What takes least memory: by the rows of a program, and changed from there choice by choice by what it takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...solver.prepare import prepare
from ...solver.solve import solve
from .found import Found
from .learnt import Learnt
from .named import named_layouts

if TYPE_CHECKING:
    from ..program import Program

EFFORT = 0.02
"""How hard (``solver.solve``): what is not proven then is hard to."""
LEAST_ROUNDS = 8
"""How often the limit is halved towards the least that the rows allow."""
LOOKS, LOOKED = (100, 2000), 80_000
"""How many solutions' memory is looked at in descents, at least and at most, and so many nodes in all."""

Stop = Callable[[], bool] | None


def looks(nodes: int) -> int:
    """How many solutions of so many nodes that decide are looked at."""
    return min(max(LOOKED // max(nodes, 1), LOOKS[0]), LOOKS[1])


def least_by_rows(
    program: Program, between: tuple[int, int], learnt: Learnt, *, deadline: float, seed: int, stop: Stop
) -> NDArray[np.int64] | None:
    """The choices of those that decide that take least memory by the rows, or nearly so; None where no limit between
    two allows any, or the ``deadline`` (``time.monotonic``) ends it.
    """
    found, (low, high) = None, between
    for _ in range(LEAST_ROUNDS):
        left = deadline - time.monotonic()
        if left <= 0 or (stop is not None and stop()):
            break
        middle = (low + high) // 2
        problem = program.problem(middle, learnt, guess=False)
        solution = solve(problem, time_limit_s=left, seed=seed, stop=stop, effort=EFFORT)
        if solution.choices is None:
            low = middle
        else:
            found, high = solution.choices[: len(program.deciders)], middle
    return found


def lowest(program: Program, *, time_limit_s: float, seed: int, stop: Stop) -> Found:
    """The layouts of the least memory that is found, within no limit."""
    deadline = time.monotonic() + time_limit_s
    prepare(stop)
    deciders = program.deciders
    learnt = Learnt.nothing(program.leader, program.wiring)
    left_s = max(deadline - time.monotonic(), 0.0)
    free = solve(program.problem(None, learnt, guess=False), time_limit_s=left_s, seed=seed, stop=stop)
    nothing = Found(status="unknown", objective_s=math.inf, bound_s=0.0)
    if free.choices is None:
        return nothing
    descent = program.lowering(
        looks(len(deciders)), lambda: time.monotonic() > deadline or (stop is not None and stop()), limit_bytes=0
    )
    start = free.choices[: len(deciders)]
    between = 0, descent.takes(start).peak_bytes
    least = least_by_rows(program, between, learnt, deadline=deadline, seed=seed, stop=stop)
    descent.into(start if least is None else least)
    if descent.least is None:
        return nothing
    peak_bytes, decided = descent.least
    layouts = named_layouts(program.wiring, program.choices(decided))
    return Found(status="unknown", objective_s=math.inf, bound_s=0.0, peak_bytes=peak_bytes, least=layouts)
