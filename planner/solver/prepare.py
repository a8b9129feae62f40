"""Compiles what a solve needs before its clock starts: some 35 s of CPU time the first time on a machine, then nothing.

A second process compiles the bounds and the walks meanwhile; what it makes is found on disk.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import numpy as np

from .bound.dual import climb_dual
from .problem import Problem, Resource, build
from .reduce.pipeline import reduce
from .rows_used import usage_of
from .search.ledger import Ledger
from .search.neighbourhood import ball, restrict, users
from .search.walk import Walker
from .solve import solve

NODES, CHOICES = 14, 4
LONG_S = 3600.0


def prepare(stop: Callable[[], bool] | None = None) -> None:
    """Solves a small problem that needs reductions, a climb and branching."""
    if compiles():
        helper = subprocess.Popen(
            [sys.executable, "-c", f"from {__name__} import prepare_rest; prepare_rest()"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            reduce(_small())
            helper.wait()
        finally:
            helper.kill()
            helper.wait()
    solve(_small(), time_limit_s=LONG_S, stop=stop)


def prepare_rest() -> None:
    """Bounds a small problem as it is, walks in it and cuts a neighbourhood out."""
    halt = np.zeros(1, np.bool_)
    dual = climb_dual(_small(), halt=halt, sweeps=2)
    Walker(dual, ledger=Ledger(halt=halt, step=1.0, left=1.0), seed=0).repair()
    restrict(dual.problem, dual.choices, np.arange(NODES) < CHOICES)
    users(usage_of(dual.problem), 0)


def compiles() -> bool:
    """Whether a function is not on disk yet."""
    ball(np.zeros(2, np.int64), np.zeros(0, np.int64), 0, 1)
    return bool(ball.stats.cache_misses)  # type: ignore[attr-defined]


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
