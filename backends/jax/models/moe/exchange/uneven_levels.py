"""The uneven exchange in two levels: Tutel's 2DH (section 3.4, Algorithm 2) of exactly the tokens that there are."""

from __future__ import annotations

from dataclasses import dataclass

from ..dispatch.sorted import Sorted, merged, permuted
from . import Exchanged
from .routes import Run, TwoLevel
from .uneven import Uneven


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevenLevels:
    """Rows go over ``levels.inner`` to the devices that lie there as their experts' do, then over ``outer`` to those.

    Each level is an exchange of its own, counts first: what arrives over ``inner`` from all devices of a group goes on
    as one message to each other group. ``bound`` is that of ``Uneven``, of each level.
    """

    levels: TwoLevel
    bound: float | None = None

    @property
    def refuses(self) -> bool:
        """Where it has a bound."""
        return self.bound is not None

    def __call__(self, run: Run, sent: Sorted) -> Exchanged:
        """On one device: as ``Uneven``, whose owners are both levels' axes, major first."""
        g, N, M = sent.rows.shape
        source, place, sizes = merged(sent, self._by_inner(sent.sizes.shape[1]))
        rows = permuted(sent.rows.reshape(g * N, M), source, place)
        within = Uneven(axes=(self.levels.inner,), devices=self.levels.inner_size, bound=self.bound)
        across = Uneven(axes=(self.levels.outer,), devices=self.levels.outer_size, bound=self._left(within, g * N))
        found = within.exchanged(lambda arrived: across(run, arrived), Sorted(rows[None], sizes[None]))
        returned = permuted(found.returned.rows[0], place, source).reshape(g, N, -1)
        return Exchanged(sent._replace(rows=returned), found.refused)

    def _by_inner(self, experts: int) -> list[int]:
        """The experts by the inner place of their devices first (a stride copy)."""
        outer, inner = self.levels.outer_size, self.levels.inner_size
        own = experts // (outer * inner)
        return [(o * inner + i) * own + k for i in range(inner) for o in range(outer) for k in range(own)]

    def _left(self, within: Uneven, rows: int) -> float | None:
        """The second level's bound, as a multiple of the first's room: the same room."""
        return None if self.bound is None else self.bound * rows / within.room(rows)
