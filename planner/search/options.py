"""What a search may be asked for in numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from numbers import Real
from typing import Any

from ...dsl.errors import Problem, problem

LONGEST_S = 10**7
MOST_PLANS = 100


def option_problems(time_limit_s: float, seed: int, top_k: int) -> Iterator[Problem]:
    """Every option that is out of its range, or no number (MW553)."""
    if not (_is(Real, time_limit_s) and math.isfinite(time_limit_s) and 0 < time_limit_s <= LONGEST_S):
        yield problem("MW553", option="The time limit", value=time_limit_s, expected=f"seconds, at most {LONGEST_S}")
    if not (_is(int, seed) and 0 <= seed < 2**32):
        yield problem("MW553", option="The seed", value=seed, expected="a whole number from 0 to 4294967295")
    if not (_is(int, top_k) and 1 <= top_k <= MOST_PLANS):
        yield problem("MW553", option="top_k", value=top_k, expected=f"a whole number from 1 to {MOST_PLANS}")


def _is(kind: type, value: Any) -> bool:
    """Whether a value is such a number; a truth value is none."""
    return isinstance(value, kind) and not isinstance(value, bool)
