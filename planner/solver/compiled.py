"""Functions over arrays, compiled at their first call and kept on disk (numba).

They are kept beside the package, or in the user's cache directory where the package cannot be written to. Compiling
is half a minute where care is not taken: what Python never calls gets no door to Python, loops stand in place of
NumPy calls that bring much code with them, and no constants are handed over that would make a version of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
INSIDE: dict[str, Any] = {**OPTIONS, "no_cpython_wrapper": True}


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """The function as machine code: arrays and numbers in, arrays and numbers out, no Python objects."""
    fast: Callable[P, R] = numba.njit(**OPTIONS)(function)
    return fast


def internal(function: Callable[P, R]) -> Callable[P, R]:
    """The same for functions that only compiled ones call: quicker to compile, out of Python's reach."""
    fast: Callable[P, R] = numba.njit(**INSIDE)(function)
    return fast
