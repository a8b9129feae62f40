"""What an MoE layer says of itself."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp

from .routing import Routing


class MoeReport(NamedTuple):
    """What an MoE layer says of itself, float32 scalars."""

    losses: dict[str, jax.Array]
    """The auxiliary losses by name, each the mean over groups, not yet weighed."""
    dropped: jax.Array
    """Share of choices that came to nothing, for want of a slot or of room, or by random routing."""
    overflowed: jax.Array
    """Share of tokens for which the gate found no expert: they pass by the residual connection."""
    load: jax.Array
    """Choices that fell on the busiest expert, over the mean of all experts."""
    refused: jax.Array
    """Of ``dropped``, the share whose rows found no room where their experts are: zero unless an exchange has a bound.
    Rows that fill an expert's up to a multiple count as choices here."""


def report_of(routing: Routing, refused: jax.Array) -> MoeReport:
    """The report of a layer that routed so, and whose exchange refused so many rows (int32)."""
    statistics = routing.statistics
    load = statistics.load.sum(axis=0).astype(jnp.float32)
    return MoeReport(
        losses={name: loss.mean() for name, loss in routing.losses.items()},
        dropped=_share(statistics.dropped.sum() + refused, statistics.choices),
        overflowed=_share(statistics.overflowed, statistics.tokens),
        load=load.max() / jnp.maximum(load.mean(), 1 / load.shape[0]),
        refused=_share(refused, statistics.choices),
    )


def silent_report() -> MoeReport:
    """The report of a block without an MoE layer: no loss, perfect balance."""
    none = jnp.float32(0)
    return MoeReport(losses={}, dropped=none, overflowed=none, load=jnp.float32(1), refused=none)


def joined(first: MoeReport, second: MoeReport) -> MoeReport:
    """The reports of two stacks of layers, one after the other; a loss that one has not is zero there."""
    names = {**first.losses, **second.losses}
    whole = []
    for report in (first, second):
        none = jnp.zeros_like(report.dropped)
        whole.append(report._replace(losses={name: report.losses.get(name, none) for name in names}))
    return jax.tree.map(lambda *both: jnp.concatenate(both), *whole)  # type: ignore[no-any-return]


def _share(part: jax.Array, whole: jax.Array) -> jax.Array:
    return part.sum() / jnp.maximum(whole.sum(), 1).astype(jnp.float32)
