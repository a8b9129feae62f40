"""Functions over arrays, compiled at their first call and kept on disk beside the package (numba)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function as machine code: arrays and numbers in, arrays and numbers out, no Python objects."""
    fast: Callable[P, R] = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return fast
