"""The arrays that problems are made of."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


def starts(counts: Ints) -> Ints:
    """Where the parts of a flat array begin that have these lengths, and, last, where it ends."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(counts, dtype=np.int64)))


def spans(begins: Ints, sizes: Ints) -> Ints:
    """The indices of spans of a flat array, one after the other."""
    offset = np.repeat(begins - starts(sizes)[:-1], sizes)
    return np.arange(len(offset)) + offset
