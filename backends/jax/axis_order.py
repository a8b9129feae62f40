"""Keeps a program to one order of axes inside, which XLA's partitioner needs to compute right.

Where a product's operand has a dim split over axes (a, c) and its result another dim over (c, a), the partitioner may
put the parts of the result in the wrong places (seen with jaxlib 0.10.2). A plan may ask for both orders. Then each
layout that is out of order is taken on and left again by a reshard of its own, at its own place, and everything between
is in order. Plans that name axes in one order, whichever it is, are not touched.
"""

from __future__ import annotations

import graphlib
import itertools
from collections.abc import Iterable, Sequence

import jax
from jax.sharding import NamedSharding, PartitionSpec

Order = tuple[str, ...]


def common_order(axes: Sequence[str], shardings: Iterable[NamedSharding]) -> Order:
    """The order of ``axes`` in which all ``shardings`` name them, major first; that of the mesh where they disagree."""
    after: dict[str, set[str]] = {axis: set() for axis in axes}
    entries = [entry for sharding in shardings for entry in sharding.spec if isinstance(entry, tuple)]
    for major, minor in (pair for entry in entries for pair in itertools.pairwise(entry)):
        after.setdefault(minor, set()).add(major)
    try:
        return tuple(graphlib.TopologicalSorter(after).static_order())
    except graphlib.CycleError:
        return tuple(axes)


def in_order(sharding: NamedSharding, order: Order) -> NamedSharding | None:
    """The same sharding with the axes of each dim in ``order``; None if they are, or if it is on other axes."""
    entries = [entry if isinstance(entry, tuple) else (entry,) for entry in sharding.spec]
    if not all(axis is None or axis in order for entry in entries for axis in entry):
        return None
    ordered = [e if e == (None,) else tuple(sorted(e, key=order.index)) for e in entries]
    if ordered == entries:
        return None
    return NamedSharding(sharding.mesh, PartitionSpec(*(e[0] if len(e) == 1 else e for e in ordered)))


def at_its_own_place(x: jax.Array, sharding: NamedSharding, order: Order) -> jax.Array:
    """``x`` laid out as ``sharding`` says, with what computes it and what uses it kept to ``order``."""
    inside = in_order(sharding, order)
    around = [sharding] if inside is None else [inside, sharding, inside]
    for each in around:
        x = jax.lax.with_sharding_constraint(x, each)
    return x
