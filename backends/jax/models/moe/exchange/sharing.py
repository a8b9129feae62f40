"""One expert over several devices: its hidden dim lies split over some axes, and stays so whatever is computed where.

Tutel's r (section 3.2, Tables 3 and 4). The weights' shards never move between steps, so that r may change from step
to step at no cost; what changes is how much of an expert's weights is gathered, and how often its tokens are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import jax

from ..dispatch.sorted import Sorted

HIDDEN_DIMS = (("wi", 2), ("wo", 1))
"""The dim of H in each of the experts' weights, [E, M, H] and [E, H, M]."""
SLOT_DIMS = 4
"""Slots are [E, G, C, M]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """How the devices of an expert share its work. ``gathered`` and ``split`` together are the axes H lies split over.

    Devices along ``gathered`` gather the weights and have tokens of their own: expert and data parallelism. Those along
    ``split``, r of them, have the same tokens and a part of H each: expert and model parallelism.
    """

    gathered: tuple[str, ...] = ()
    split: tuple[str, ...] = ()
    hidden_dims: tuple[tuple[str, int], ...] = HIDDEN_DIMS

    @property
    def axes(self) -> tuple[str, ...]:
        """The axes that H lies split over, major first."""
        return (*self.gathered, *self.split)

    def dims(self, params: Any) -> Any:
        """The dim of each weight that lies split over ``axes``, None for none: a pytree as ``params``' top level."""
        known = dict(self.hidden_dims) if self.axes else {}
        return {name: known.get(name) for name in params} if isinstance(params, Mapping) else None

    def weights(self, params: Any) -> Any:
        """In the region: this device's weights, gathered along ``gathered``."""
        return self._gather(params, self.gathered) if self.gathered else params

    def all_weights(self, params: Any, owners: tuple[str, ...]) -> Any:
        """In the region: the whole weights of every expert (r = 0: data parallelism)."""
        experts = jax.tree.map(lambda w: _all_gather(w, owners, 0), params)
        return self._gather(experts, self.axes) if self.axes else experts

    def run(self, work: Callable[[Any], Any], arrived: Any) -> Any:
        """In the region: ``work(arrived)`` on the tokens of all devices along ``split``, its parts of H added up."""
        if not self.split:
            return work(arrived)
        said = work(jax.tree.map(self._tokens_of_all, arrived))
        if isinstance(said, Sorted):
            return arrived._replace(rows=self._added_up(said.rows))
        return self._added_up(said)

    def _tokens_of_all(self, x: jax.Array) -> jax.Array:
        """The groups of all devices along ``split``, of slots [E, G, C, M] or sorted rows or sizes [G, ...]."""
        if x.ndim != SLOT_DIMS:
            return _all_gather(x, self.split, 0)
        E, _, C, M = x.shape
        return _all_gather(x.reshape(E, -1, M), self.split, 1).reshape(E, -1, C, M)

    def _added_up(self, said: jax.Array) -> jax.Array:
        """The sum over ``split``, of which each device keeps its own groups.

        Slots are rows on the way: TPUs keep a part of a sum along rows, of a dim before them they make the whole sum.
        """
        if said.ndim != SLOT_DIMS:
            return _reduce_scatter(said, self.split, 0)
        E, _, C, M = said.shape
        return _reduce_scatter(said.reshape(E, -1, M), self.split, 1).reshape(E, -1, C, M)

    def _gather(self, params: Any, axes: tuple[str, ...]) -> Any:
        known = dict(self.hidden_dims)
        return {name: _all_gather(w, axes, known[name]) if name in known else w for name, w in params.items()}


def shared(axes: Mapping[str, int], split_over: int | None) -> Sharing | None:
    """The sharing over the hidden dim's ``axes`` (sizes by name, major first) with r ``split_over``.

    None for r is all of them; 0 gathers everything. None where no set of minor axes has r devices.
    """
    names, wanted = list(axes), math.prod(axes.values()) if split_over is None else max(split_over, 1)
    for first in range(len(names), -1, -1):
        if math.prod(axes[name] for name in names[first:]) == wanted:
            return Sharing(gathered=tuple(names[:first]), split=tuple(names[first:]))
    return None


def _all_gather(x: jax.Array, axes: tuple[str, ...], dim: int) -> jax.Array:
    return jax.lax.all_gather(x, axes, axis=dim, tiled=True)  # type: ignore[no-any-return]


def _reduce_scatter(x: jax.Array, axes: tuple[str, ...], dim: int) -> jax.Array:
    return jax.lax.psum_scatter(x, axes, scatter_dimension=dim, tiled=True)  # type: ignore[no-any-return]
