"""Fits coefficients to cycles that a compiler gave: one after the other, by shrinking factors, until none helps.

The price is not linear in them (the slowest unit decides, windows come in whole numbers), so that no linear solver
applies; a dozen numbers and some hundred programs need none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import NDArray

from ..graph import Graph
from ..kernels import Kernel, Program
from .coefficients import Coefficients
from .price import price_at
from .speed import Speed
from .start import SEEN
from .work import Work, work_of

FACTORS = (2.0, 1.4, 1.15, 1.05)
ROUNDS = 2
TAIL_WEIGHT = 0.3
LEARNED = tuple(each.name for each in fields(Coefficients) if each.name not in (*SEEN, "near_total_bytes"))
"""All but what is known of a chip: the size of its vector memory, and what whole programs show of its compiler."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A program of one device and the cycles that the compiler gives it; its kernels' work is counted once."""

    name: str
    program: Program
    cycles: float
    counted: dict[int, Work] = field(default_factory=dict, repr=False)

    def count(self, graph: Graph, kernel: Kernel) -> Work:
        """The work of a kernel of the program."""
        if id(kernel) not in self.counted:
            self.counted[id(kernel)] = work_of(graph, kernel)
        return self.counted[id(kernel)]

    def predicted_cycles(self, of: Coefficients, edge: int) -> float:
        """Cycles of the program by these coefficients, of what the compiler counts."""
        speed = Speed(coefficients=of, clock_hz=1.0, edge=edge, source="fit")
        prices = price_at(self.program, speed, count=self.count)
        return sum(each.cycles * each.times for each in prices if each.counted)


def fit(found: Sequence[Measured], begin: Coefficients, edge: int) -> Coefficients:
    """The coefficients with the least loss that steps from ``begin`` reach."""
    best, least = begin, _loss(found, begin, edge)
    for factor in FACTORS:
        for _ in range(ROUNDS):
            for name in LEARNED:
                best, least = _along(found, edge, best, least, name, factor)
    return best


def errors(found: Sequence[Measured], of: Coefficients, edge: int) -> tuple[float, float]:
    """The median and the 95th percentile of |predicted - given| / given."""
    off = np.abs(np.exp(_log_ratios(found, of, edge)) - 1)
    return round(float(np.median(off)), 4), round(float(np.quantile(off, 0.95)), 4)


def _along(
    found: Sequence[Measured], edge: int, best: Coefficients, least: float, name: str, factor: float
) -> tuple[Coefficients, float]:
    """Multiplies one coefficient as long as that helps, up or down."""
    for way in (factor, 1 / factor):
        while True:
            tried = replace(best, **{name: getattr(best, name) * way})
            loss = _loss(found, tried, edge)
            if loss >= least * (1 - 1e-6):
                break
            best, least = tried, loss
    return best, least


def _loss(found: Sequence[Measured], of: Coefficients, edge: int) -> float:
    """The mean of how far logarithms are off, and a share of the squares, which the worst decide."""
    off = np.abs(_log_ratios(found, of, edge))
    return float(off.mean() + TAIL_WEIGHT * np.square(off).mean())


def _log_ratios(found: Sequence[Measured], of: Coefficients, edge: int) -> NDArray[np.float64]:
    predicted = np.array([max(each.predicted_cycles(of, edge), 1.0) for each in found])
    given = np.array([each.cycles for each in found])
    ratios: NDArray[np.float64] = np.log(predicted) - np.log(given)
    return ratios
