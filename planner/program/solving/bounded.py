"""What a program costs at least, where that is all that is asked."""

from __future__ import annotations

import math

from ...solver.prepare import prepare
from ..wiring.ways import open_ways
from .found import Found
from .solutions import PER_S, Solutions

WIDENED = 3
"""How often choices are added at most where what is found pays the same more than once."""


def bounded(kept: Solutions) -> Found:
    """The bound of a program whose solutions nobody prices."""
    program = kept.program
    prepare(kept.stop)
    bound_s = 0.0
    for _ in range(1 + WIDENED):
        solution = kept.solved(guess=False, below_s=kept.cutoff_s)
        bound_s = min(solution.bound / PER_S, kept.cutoff_s)
        if kept.ended() or solution.choices is None:
            break
        if not open_ways(program.wiring, program.leader, program.choices(solution.choices), solution.cost / PER_S):
            break
        kept.learnt.widen(program.wiring)
        bound_s = 0.0
    return Found(status="unknown", objective_s=math.inf, bound_s=bound_s, floor_s=bound_s, rounds=kept.count)
