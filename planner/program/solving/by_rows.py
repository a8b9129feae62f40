"""What takes least memory by the rows of a program."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ...solver.solve import solve
from .learnt import Learnt

if TYPE_CHECKING:
    from ..program import Program

EFFORT = 0.02
"""How hard (``solver.solve``): what is not proven then is hard to."""
LEAST_ROUNDS = 8
"""How often the limit is halved towards the least that the rows allow."""
PROVEN = 0.01
"""How near to what is proven to be taken at least another limit is that is not, as a part of what is."""
DOUBT = 1.05
"""How many times the temporaries that there are rows as kernels stand may count: these are those of the whole step.
Rows that are sure count what is there in whatever order: of solutions of MLPs, Transformers, decoders in loops and
experts on v3 and v4 none holds less than 1.1 times as much.
"""
LOOKS, LOOKED = (100, 2000), 80_000
"""How many solutions' memory is looked at in descents, at least and at most, and so many nodes in all."""

Stop = Callable[[], bool] | None


def looks(nodes: int) -> int:
    """How many solutions of so many nodes that decide are looked at."""
    return min(max(LOOKED // max(nodes, 1), LOOKS[0]), LOOKS[1])


def proven_by_rows(
    program: Program, least_bytes: int, learnt: Learnt, *, deadline: float, seed: int, stop: Stop
) -> int:
    """Bytes that no choices take less than, by rows that are sure; some were seen to take ``least_bytes``. What is left
    between the two is halved as long as there is time.
    """
    low, high = 0, least_bytes
    while high - low > PROVEN * least_bytes:
        left = deadline - time.monotonic()
        if left <= 0 or (stop is not None and stop()):
            break
        middle = (low + high) // 2
        problem = program.problem(middle, learnt, guess=False, sure=True)
        solution = solve(problem, time_limit_s=left, seed=seed, stop=stop, effort=EFFORT)
        low, high = (middle, high) if solution.status == "infeasible" else (low, middle)
    return low


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
