"""Chunks: what is sent is cut, and the exchange of one chunk may go on while the experts compute another.

FastMoE's smart schedule and Tutel's adaptive pipelining (its degree: 1, 2, 4 or 8). Nothing is said of the order: no
chunk waits for another, so the compiler's scheduler is free to overlap them; a plan's step asks it to (``overlap``).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from ....overlap import overlapped
from . import Exchanged

SLOTS = 2
"""The dim of the slots in [E, G, C, M]."""


def in_chunks(
    way: Callable[[Any, jax.Array | None], Exchanged], sent: Any, key: jax.Array | None, *, chunks: int
) -> Exchanged:
    """``way(sent, key)`` for each of ``chunks`` chunks of the slots of ``sent`` [E, G, C, M], and their results joined.

    The numbers are those of one chunk but for dropout, which draws anew in each. Where there are fewer slots than
    chunks, each slot is a chunk; where they do not divide evenly, the last chunks have one slot less. ``Sorted``
    tokens are one chunk.
    """
    if chunks == 1 or not isinstance(sent, jax.Array):
        return way(sent, key)
    with overlapped():
        parts = [
            way(part, None if key is None else jax.random.fold_in(key, number))
            for number, part in enumerate(_cut(sent, min(chunks, sent.shape[SLOTS])))
        ]
    returned = jnp.concatenate([part.returned for part in parts], axis=SLOTS)
    return Exchanged(returned, sum((part.refused for part in parts[1:]), parts[0].refused))


def _cut(sent: jax.Array, chunks: int) -> list[jax.Array]:
    slots = sent.shape[SLOTS]
    ends = [-(-slots * number // chunks) for number in range(chunks + 1)]
    return [jax.lax.slice_in_dim(sent, a, b, axis=SLOTS) for a, b in itertools.pairwise(ends)]
