"""What takes least memory: limits between what is known to fit and what is not, then changed choice by choice."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...solver.prepare import prepare
from .by_rows import Stop, least_by_rows, looks, proven_by_rows
from .found import Found
from .limited import Limited
from .named import named_layouts
from .solutions import Solutions

if TYPE_CHECKING:
    from ..program import Program

LIMITS = 0.6
"""Of the time: for limits that are lowered; the rest changes what took least."""
PROVING = 0.1
"""Of the time at most: for what nothing takes less than."""


def lowest(program: Program, *, time_limit_s: float, seed: int, stop: Stop) -> Found:
    """The layouts of the least memory that is found, within no limit."""
    begin_s = time.monotonic()
    prepare(stop)
    kept = Solutions(replace(program, limit_bytes=0), begin_s + LIMITS * time_limit_s, seed, stop, math.inf)
    deciders = program.deciders
    free = kept.solved(guess=True)
    if free.choices is None:
        return Found(status="unknown", objective_s=math.inf, bound_s=0.0)
    between = 0, kept.price(free.choices).estimate.peak_bytes
    proving = time.monotonic() + PROVING * time_limit_s
    proven_bytes = proven_by_rows(program, between[1], kept.nothing, deadline=proving, seed=seed, stop=stop)
    least = least_by_rows(program, between, kept.nothing, deadline=kept.deadline, seed=seed, stop=stop)
    if least is not None and not kept.ended():
        kept.price(least)
    Limited(kept).approach()
    starts = [] if least is None else [least]
    nearest = None if kept.least is None else np.array(kept.least[1], np.int64)[deciders]
    if nearest is not None and (least is None or not np.array_equal(nearest, least)):
        starts.append(nearest)
    for number, start in enumerate(starts):
        part = 1 / (len(starts) - number)
        until = time.monotonic() + part * (begin_s + time_limit_s - time.monotonic())
        descent = program.lowering(
            int(part * looks(len(deciders))),
            lambda until=until: kept.stopped or time.monotonic() > until,  # type: ignore[misc]
            limit_bytes=0,
        )
        descent.into(start)
        if descent.least is not None:
            peak_bytes, decided = descent.least
            kept.seen(peak_bytes, program.choices(decided))
    peak_bytes, choices = kept.least or (0, [])
    layouts = named_layouts(program.wiring, choices)
    return Found(
        status="unknown",
        objective_s=math.inf,
        bound_s=0.0,
        peak_bytes=peak_bytes,
        proven_bytes=proven_bytes,
        least=layouts,
    )
