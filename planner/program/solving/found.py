"""What a program's solution says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ...graph import Sharding

Status = Literal["optimal", "feasible", "infeasible", "unknown"]

Tell = Callable[[float, Mapping[str, Sharding]], None]
"""Hears of the best that is known before it is proven: what it takes, and its layouts."""


class Beyond(NamedTuple):
    """Layouts that take a little more than the limit."""

    peak_bytes: int
    seconds: float
    layouts: Mapping[str, Sharding]


class RunnerUp(NamedTuple):
    """Layouts that were next to the best, and what they take."""

    seconds: float
    layouts: Mapping[str, Sharding]


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found. ``layouts`` are those of every named value (None: none were found).

    ``objective_s`` is the exact price of the layouts, ``bound_s`` what no layouts of the program take less than at the
    costs that exact prices led to, ``floor_s`` the same at the costs of kernels alone; both allow for ``credit_s``,
    the most that a solution took less than its costs. ``peak_bytes`` is a device's memory; where nothing fits, the
    least that was seen, and ``least`` the layouts that take it; where that was asked for, no layouts take less than
    ``proven_bytes``. ``near`` are some layouts that take a little more than the limit and may take less time: the plan
    that is written of them may fit. ``runners_up`` are those that were next to the best: that may become no such plan
    as it costs. ``rounds`` is how often the program was solved, ``choices`` that of each of its nodes.
    """

    status: Status
    objective_s: float
    bound_s: float
    floor_s: float = 0.0
    credit_s: float = 0.0
    peak_bytes: int = 0
    proven_bytes: int = 0
    layouts: Mapping[str, Sharding] | None = None
    least: Mapping[str, Sharding] | None = None
    near: Sequence[Beyond] = field(default=(), repr=False)
    runners_up: Sequence[RunnerUp] = field(default=(), repr=False)
    rounds: int = 0
    choices: tuple[int, ...] = field(default=(), repr=False)
