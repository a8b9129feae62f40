"""Compiles what a solve needs before its clock starts: half a minute the first time on a machine, then nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .problem import Problem, Resource, build
from .solve import solve

NODES, CHOICES = 14, 4
LONG_S = 3600.0


def prepare(stop: Callable[[], bool] | None = None) -> None:
    """Solves a small problem that needs reductions, a climb and branching."""
    solve(_small(), time_limit_s=LONG_S, stop=stop)


def _small() -> Problem:
    random = np.random.default_rng(3)
    ends = [(i, j) for i in range(NODES) for j in (i + 1, i + 3, i + 5) if j < NODES]
    begins = np.arange(NODES)
    return build(
        costs=[random.integers(0, 50, CHOICES).astype(float) for _ in range(NODES)],
        ends=np.array(ends),
        tables=[random.integers(0, 60, CHOICES**2).astype(float) for _ in ends],
        resources=[
            Resource(
                intervals=np.stack((begins, begins + 5), axis=1),
                usages=random.integers(0, 20, CHOICES * NODES),
                limit=30,
            )
        ],
    )
