"""The uneven exchange, in two phases: first counts, then exactly the tokens, as in FastMoE and MegaBlocks.

Dims, on one device: g groups of N rows sorted by expert, n = g·N; W devices that own e = E/W experts each; B rows of
room for what arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp

from ..dispatch.sorted import Sorted, merged, permuted
from . import Exchanged
from .routes import Run

TILE = 128
"""The room is a multiple of this: what kernels work on at once."""


class Sizes(NamedTuple):
    """Who sends how many rows to whom, as one device knows it, int32."""

    here: jax.Array
    """[W]: where the rows for each device begin among this device's own."""
    sent: jax.Array
    """[W]: how many of them that device takes."""
    there: jax.Array
    """[W]: where it puts them."""
    begin: jax.Array
    """[W]: where the rows from each device begin among those that arrive here."""
    taken: jax.Array
    """[W]: how many of them there are."""
    origin: jax.Array
    """[W]: where they begin among that device's own."""
    of_expert: jax.Array
    """[W, e]: how many of them are each expert's."""
    refused: jax.Array
    """How many of this device's rows are not taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Uneven:
    """Of each device's rows go exactly those that there are: no slots, no padding.

    A compiled program has static shapes: what arrives at a device has room for ``bound`` times its own rows n, rounded
    up to a multiple of 128, or W·n where that is None, which always suffices. What finds no room is refused: the
    rows that come last, by device and by expert. On TPU and GPU it is ``jax.lax.ragged_all_to_all``; CPUs
    have none, and take a dense all-to-all with masks.
    """

    axes: tuple[str, ...]
    devices: int
    """W."""
    bound: float | None = None

    @property
    def refuses(self) -> bool:
        """Where it has a bound."""
        return self.bound is not None

    def __call__(self, run: Run, sent: Sorted) -> Exchanged:
        """On one device: ``sent`` has rows [g, N, M] and sizes [g, E]. ``run`` gets rows [1, B, M] and sizes [1, e]."""
        return self.exchanged(lambda arrived: Exchanged(run(arrived), jnp.int32(0)), sent)

    def exchanged(self, run: Callable[[Sorted], Exchanged], sent: Sorted) -> Exchanged:
        """As a call, where ``run`` may itself refuse rows, which count."""
        g, N, M = sent.rows.shape
        source, place, by_expert = merged(sent)
        rows = permuted(sent.rows.reshape(g * N, M), source, place)
        room = self.room(g * N)
        sizes = self._agree(by_expert, room)
        arrived = self._move(rows, room, sizes.here, sizes.sent, sizes.there, sizes.taken)
        to, of = by_expert_order(sizes, room)
        said = run(Sorted(permuted(arrived, of, to)[None], sizes.of_expert.sum(axis=0)[None]))
        back = permuted(said.returned.rows[0], to, of)
        returned = self._move(back, g * N, sizes.begin, sizes.taken, sizes.origin, sizes.sent)
        unsorted = permuted(returned, place, source).reshape(g, N, -1)
        return Exchanged(sent._replace(rows=unsorted), sizes.refused + said.refused)

    def room(self, rows: int) -> int:
        """B for n ``rows``."""
        if self.bound is None:
            return self.devices * rows
        return min(self.devices * rows, -(-round(self.bound * rows) // TILE) * TILE)

    def _agree(self, by_expert: jax.Array, room: int) -> Sizes:
        """The first phase: counts go there, what is taken comes back."""
        wanted = by_expert.reshape(self.devices, -1)
        here = jnp.cumsum(wanted.sum(axis=1)) - wanted.sum(axis=1)
        told = self._all_to_all(jnp.concatenate([wanted, here[:, None]], axis=1))
        arriving, origin = told[:, :-1], told[:, -1]
        total = arriving.sum(axis=1)
        begin = jnp.minimum(jnp.cumsum(total) - total, room)
        taken = jnp.minimum(total, room - begin)
        answer = self._all_to_all(jnp.stack([taken, begin], axis=1))
        before = jnp.cumsum(arriving, axis=1) - arriving
        return Sizes(
            here=here,
            sent=answer[:, 0],
            there=answer[:, 1],
            begin=begin,
            taken=taken,
            origin=origin,
            of_expert=jnp.clip(taken[:, None] - before, 0, arriving),
            refused=wanted.sum() - answer[:, 0].sum(),
        )

    def _move(
        self,
        rows: jax.Array,
        room: int,
        begin: jax.Array,
        count: jax.Array,
        there: jax.Array,
        arriving: jax.Array,
    ) -> jax.Array:
        """The second phase: [room, M], zero where nothing is put."""
        empty = jnp.zeros((room, rows.shape[1]), rows.dtype)

        def ragged(*args: jax.Array) -> jax.Array:
            return jax.lax.ragged_all_to_all(*args, axis_name=self.axes)  # type: ignore[no-any-return]

        def dense(*args: jax.Array) -> jax.Array:
            return dense_all_to_all(*args, axes=self.axes)

        moved: jax.Array = jax.lax.platform_dependent(
            rows, empty, begin, count, there, arriving, cpu=dense, default=ragged
        )
        return moved

    def _all_to_all(self, x: jax.Array) -> jax.Array:
        return jax.lax.all_to_all(x, self.axes, split_axis=0, concat_axis=0, tiled=True)  # type: ignore[no-any-return]


def by_expert_order(sizes: Sizes, room: int) -> tuple[jax.Array, jax.Array]:
    """The permutation that brings rows from the order of arrival, device by device, to that of experts.

    ``to`` and ``of`` [B]: row i of arrival goes to row ``to[i]``, and row j of the experts is row ``of[j]`` of arrival.
    """
    counts = sizes.of_expert
    ends, number = jnp.cumsum(counts.reshape(-1)), jnp.arange(room)
    starts = ends - counts.reshape(-1)
    goal = jnp.cumsum(counts.T.reshape(-1)).reshape(counts.T.shape).T - counts
    segment = jnp.searchsorted(ends, number, side="right", method="sort")
    moved = jnp.take(goal.reshape(-1) - starts, segment, mode="clip") + number
    to = jnp.where(number < ends[-1], moved, number)
    return to, jnp.argsort(to)


def dense_all_to_all(
    rows: jax.Array,
    output: jax.Array,
    begin: jax.Array,
    count: jax.Array,
    there: jax.Array,
    arriving: jax.Array,
    *,
    axes: tuple[str, ...],
) -> jax.Array:
    """``jax.lax.ragged_all_to_all`` by a dense all-to-all with masks: W times the rows, the same numbers."""
    number = jnp.arange(len(rows))
    parts = jnp.take(rows, begin[:, None] + number, axis=0, mode="clip")
    parts = jnp.where((number < count[:, None])[..., None], parts, 0)

    def moved(x: jax.Array) -> jax.Array:
        return jax.lax.all_to_all(x, axes, split_axis=0, concat_axis=0, tiled=True)  # type: ignore[no-any-return]

    at = jnp.where(number < arriving[:, None], moved(there)[:, None] + number, len(output))
    flat = moved(parts).reshape(-1, rows.shape[1])
    return output.at[at.reshape(-1)].set(flat, mode="drop")
