"""Functions over arrays, compiled at their first call and kept on disk beside the package (numba)."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")
OPTIONS = {"cache": True, "nogil": True, "error_model": "numpy"}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function as machine code: arrays and numbers in, arrays and numbers out, no Python objects."""
    fast: Callable[P, R] = numba.njit(no_cfunc_wrapper=True, **OPTIONS)(function)
    return fast


def inner(function: Callable[P, R]) -> Callable[P, R]:
    """The same for a function that only compiled ones call: Python cannot, which saves half of its compilation."""
    fast: Callable[P, R] = numba.njit(no_cfunc_wrapper=True, no_cpython_wrapper=True, **OPTIONS)(function)
    return fast
