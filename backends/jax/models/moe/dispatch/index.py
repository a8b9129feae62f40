"""Dispatch by index: each slot fetches its token, each token its slots (Tutel section 3.3, fast encode and decode).

Some 2·S·K·M operations each way a group where one-hot products take 2·S·E·C·M. Both ways and their gradients are
gathers of rows; nothing but one array of whole numbers, S·K of them a group, is scattered.
Dims: G groups of S tokens with K choices each, X rows that tokens are sent in (E·C slots, or sorted ones), model dim M.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..routing import Routing


class Places(NamedTuple):
    """Which row each choice is sent in, and back."""

    row: jax.Array
    """[G, S, K] int32: the row, no two the same; X or more for a choice that is not sent."""
    choice: jax.Array
    """[G, X] int32: the choice in each row, s·K + k; S·K where the row is empty."""
    weight: jax.Array
    """[G, S, K] float32."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexDispatch:
    """Tutel's way: the buffers are those of the one-hot products, bit for bit."""

    def prepare(self, routing: Routing, *, experts: int, capacity: int) -> Places:
        """The rows are the slots of all experts, E·C of them."""
        row = routing.expert * capacity + routing.slot
        return places(routing, row, rows=experts * capacity)

    def send(self, prepared: Places, inputs: jax.Array, *, experts: int, capacity: int) -> jax.Array:
        """[E, G, C, M]: each token in the slots that it was given."""
        rows = encode(inputs, prepared.row, prepared.choice)
        return rows.reshape(len(inputs), experts, capacity, -1).transpose(1, 0, 2, 3)

    def combine(self, prepared: Places, returned: jax.Array) -> jax.Array:
        """[G, S, M]: the weighted sum of what the experts say of each token."""
        E, G, C, M = returned.shape
        return decode(returned.transpose(1, 0, 2, 3).reshape(G, E * C, M), *prepared)


def places(routing: Routing, row: jax.Array, *, rows: int) -> Places:
    """The places of choices sent in ``row`` [G, S, K], if they are kept; no two of a group share a row."""
    G, S, K = row.shape
    numbers = jnp.arange(S * K, dtype=jnp.int32)
    row = jnp.where(routing.kept, row, rows + numbers.reshape(S, K))
    empty = jnp.full(rows, S * K, jnp.int32)
    choice = jax.vmap(lambda at: empty.at[at].set(numbers, mode="drop", unique_indices=True))(row.reshape(G, S * K))
    return Places(row, choice, routing.weight)


@jax.custom_vjp
def encode(inputs: jax.Array, row: jax.Array, choice: jax.Array) -> jax.Array:
    """[G, X, M]: in each row the token of ``inputs`` [G, S, M] that was sent in it, zero in empty ones."""
    return _rows(inputs, choice // row.shape[-1])


def _encode_forward(inputs: jax.Array, row: jax.Array, choice: jax.Array) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return encode(inputs, row, choice), (row, choice)


def _encode_backward(saved: tuple[jax.Array, ...], gradient: jax.Array) -> tuple[jax.Array, None, None]:
    row, choice = saved
    return _to_tokens(gradient, row, choice, jnp.ones(row.shape, gradient.dtype)), None, None


encode.defvjp(_encode_forward, _encode_backward)


@jax.custom_vjp
def decode(rows: jax.Array, row: jax.Array, choice: jax.Array, weight: jax.Array) -> jax.Array:
    """[G, S, M]: for each token the sum of the ``rows`` [G, X, M] that its choices were sent in, by their weights.

    Weights are rounded to the rows' dtype, sums are float32: as in a product with one-hot masks.
    """
    return _to_tokens(rows, row, choice, weight)


def _decode_forward(
    rows: jax.Array, row: jax.Array, choice: jax.Array, weight: jax.Array
) -> tuple[jax.Array, tuple[jax.Array, ...]]:
    return decode(rows, row, choice, weight), (rows, row, choice, weight)


def _decode_backward(saved: tuple[jax.Array, ...], gradient: jax.Array) -> tuple[jax.Array, None, None, jax.Array]:
    rows, row, choice, weight = saved
    K = row.shape[-1]
    sent = _rows(gradient, choice // K).astype(jnp.float32)
    of_rows = (sent * _weight_of_row(weight, choice, rows.dtype)[..., None]).astype(rows.dtype)
    wide = gradient.astype(jnp.float32)
    of_weights = [(wide * _rows(rows, row[..., k]).astype(jnp.float32)).sum(axis=-1) for k in range(K)]
    return of_rows, None, None, jnp.stack(of_weights, axis=-1).astype(weight.dtype)


decode.defvjp(_decode_forward, _decode_backward)


def _to_tokens(rows: jax.Array, row: jax.Array, choice: jax.Array, weight: jax.Array) -> jax.Array:
    """[G, S, M]: gathered by token, or, if there are fewer rows than choices, scattered by row."""
    _, S, K = row.shape
    if choice.shape[1] < S * K:
        weighed = rows.astype(jnp.float32) * _weight_of_row(weight, choice, rows.dtype)[..., None]
        zeros = jnp.zeros((S, rows.shape[-1]), jnp.float32)
        sums = jax.vmap(lambda x, at: zeros.at[at].add(x, mode="drop"))(weighed, choice // K)
        return sums.astype(rows.dtype)
    narrow = weight.astype(rows.dtype).astype(jnp.float32)
    parts = [narrow[..., k, None] * _rows(rows, row[..., k]).astype(jnp.float32) for k in range(K)]
    return sum(parts[1:], parts[0]).astype(rows.dtype)


def _weight_of_row(weight: jax.Array, choice: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """[G, X] float32, rounded to ``dtype``; zero for empty rows."""
    flat = weight.reshape(len(weight), -1)
    return jax.vmap(_fetch)(flat, choice).astype(dtype).astype(jnp.float32)


def _rows(table: jax.Array, numbers: jax.Array) -> jax.Array:
    """Rows of ``table`` [G, N, M] by ``numbers`` [G, R]; zero for numbers beyond it."""
    return jax.vmap(_fetch)(table, numbers)


def _fetch(table: jax.Array, numbers: jax.Array) -> jax.Array:
    return table.at[numbers].get(mode="fill", fill_value=0)
