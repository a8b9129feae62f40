"""A program to measure on one GPU: a function, its abstract arguments, and what its random arguments are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """``high``: its whole numbers are drawn below this. ``donated``: how many of its arguments are, in order, the
    first results of the step before; they are donated, and handed on from step to step.
    """

    name: str
    step: Callable[..., Any]
    args: tuple[Any, ...]
    high: int = 0
    donated: int = 0


def abstract(shape: tuple[int, ...], dtype: Any) -> jax.ShapeDtypeStruct:
    """An abstract array."""
    return jax.ShapeDtypeStruct(shape, dtype)
