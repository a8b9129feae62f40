"""Dispatch by sorting: tokens stand one after another, expert by expert, and none is dropped or padded for want of a
fixed number of slots (MegaBlocks section 4).

A gate has counted its choices already, so that each one's place among its expert's is known: sorting is an addition.
Dims: G groups of S tokens with K choices each, N rows of a group, E experts, model dim M.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..routing import Routing
from .index import Places, decode, encode, places


class Sorted(NamedTuple):
    """Tokens sorted by expert."""

    rows: jax.Array
    """[G, N, M]: in each group the first expert's tokens, then the second's, and so on; rows behind are empty."""
    sizes: jax.Array
    """[G, E] int32: the rows of each expert, empty ones between included."""


class Prepared(NamedTuple):
    """The rows of a routing's choices, and the rows of each expert [G, E]."""

    places: Places
    sizes: jax.Array


@dataclass(frozen=True, slots=True, kw_only=True)
class SortedDispatch:
    """MegaBlocks' way. A capacity of S, all tokens of a group, never drops any; a smaller one drops what overflows."""

    multiple: int = 1
    """The rows of each expert are filled up with zeros to a multiple of this: 128 in MegaBlocks' kernels."""

    def prepare(self, routing: Routing, *, experts: int, capacity: int) -> Prepared:
        """What fell on an expert, up to its capacity, gets rows; one dropped at random keeps an empty row."""
        sizes = self._filled(jnp.minimum(routing.statistics.load, capacity))
        starts = jnp.cumsum(sizes, axis=1) - sizes
        row = jax.vmap(lambda start, expert: start[expert])(starts, routing.expert) + routing.slot
        return Prepared(places(routing, row, rows=self.rows(routing, experts, capacity)), sizes)

    def send(self, prepared: Prepared, inputs: jax.Array, *, experts: int, capacity: int) -> Sorted:
        """The tokens of ``inputs`` [G, S, M], once for each of their choices."""
        return Sorted(encode(inputs, prepared.places.row, prepared.places.choice), prepared.sizes)

    def combine(self, prepared: Prepared, returned: Sorted) -> jax.Array:
        """[G, S, M]: the weighted sum of what the experts say of each token."""
        return decode(returned.rows, *prepared.places)

    def rows(self, routing: Routing, experts: int, capacity: int) -> int:
        """N: what a group may need at most."""
        _, S, K = routing.expert.shape
        most = min(S * K + experts * (self.multiple - 1), experts * (capacity + self.multiple - 1))
        return -(-most // self.multiple) * self.multiple

    def _filled(self, sizes: jax.Array) -> jax.Array:
        return (sizes + self.multiple - 1) // self.multiple * self.multiple


def merged(sent: Sorted, order: Sequence[int] | None = None) -> tuple[jax.Array, jax.Array, jax.Array]:
    """The permutation that sorts the rows of all groups by expert, its inverse, both [G·N], and their sizes [E].

    ``order`` has the experts in another order than by number.
    """
    number = jnp.arange(sent.rows.shape[1])
    ends = jnp.cumsum(sent.sizes, axis=1)
    expert = jax.vmap(lambda end: jnp.searchsorted(end, number, side="right", method="compare_all"))(ends)
    sizes = sent.sizes.sum(axis=0)
    if order is not None:
        expert = jnp.append(jnp.argsort(jnp.array(order)), len(order))[expert]
        sizes = sizes[jnp.array(order)]
    source = jnp.argsort(expert.reshape(-1), stable=True)
    return source, jnp.argsort(source), sizes


@jax.custom_vjp
def permuted(rows: jax.Array, source: jax.Array, place: jax.Array) -> jax.Array:
    """``rows[source]``; ``place`` is the inverse of the permutation ``source``: the gradient is a gather too."""
    return rows[source]


def _permuted_forward(
    rows: jax.Array, source: jax.Array, place: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
    return rows[source], (source, place)


def _permuted_backward(saved: tuple[jax.Array, jax.Array], gradient: jax.Array) -> tuple[jax.Array, None, None]:
    return gradient[saved[1]], None, None


permuted.defvjp(_permuted_forward, _permuted_backward)
