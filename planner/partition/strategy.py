"""What an operation asks of its operands' layouts and what it leaves to do with its results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...dsl.records import record
from ..graph import Axes, Op, Sharding, Value
from .layout import Mesh
from .target import Target
from .windows import Window


@record(frozen=True, slots=True)
class PartialSum:
    """Results that are sums over ``axes`` once reduced; each device then keeps its part of ``scattered``.

    Without axes they are laid out so before they are summed further.
    """

    axes: Axes
    scattered: Sharding | None = None


@dataclass(frozen=True, slots=True)
class Halo:
    """Rows of others that a part of an operand needs: ``dim`` split over ``axes``, ``low``, ``high`` of its neighbours.

    Where some come from further away, ``sent`` has the rows of each permute that brings them.
    """

    operand: int
    dim: int
    axes: Axes
    low: int
    high: int
    sent: tuple[int, ...] = ()


@record(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How one operation is computed on each device.

    ``operands`` are the layouts that it needs of them, ``made`` those of its results as the devices compute them, which
    the ``sums`` then complete. ``paths`` are layouts that each operand, then each result, passes through on its way;
    without them it goes straight. ``attributes`` replace the operation's own where the parts' sizes show in them.
    """

    operands: tuple[Sharding, ...]
    made: tuple[Sharding, ...]
    paths: tuple[tuple[Sharding, ...], ...] = ()
    sums: tuple[PartialSum, ...] = ()
    halos: tuple[Halo, ...] = ()
    window: Window | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


@record(frozen=True, slots=True, kw_only=True)
class Asked:
    """An operation with the global values that it reads and makes, their layouts, and the mesh.

    ``shared`` says of each operand whether other products want it laid out alike; nothing if that is not asked.
    """

    op: Op
    reads: tuple[Value, ...]
    makes: tuple[Value, ...]
    operands: tuple[Sharding, ...]
    results: tuple[Sharding, ...]
    mesh: Mesh
    target: Target
    shared: tuple[bool, ...] = ()


Rule = Callable[[Asked], Strategy]
