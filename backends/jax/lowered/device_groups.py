"""Groups of devices in a collective that the step itself wrote, as axes of the mesh."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np


def axes_of_groups(attribute: Any, mesh: Mapping[str, int]) -> dict[str, Any]:
    """``axes``, whose lines through the mesh the groups are; else ``group_size`` alone."""
    groups = np.asarray(attribute.maybe_downcast())
    sizes = tuple(mesh.values())
    size = groups.shape[-1]
    if groups.size != math.prod(sizes):
        return {"group_size": size}
    places = np.stack(np.unravel_index(groups[0], sizes)) if sizes else np.zeros((0, size), int)
    varying = [i for i, row in enumerate(places) if len(set(row.tolist())) > 1]
    lines = np.moveaxis(np.arange(groups.size).reshape(sizes), varying, range(-len(varying), 0)).reshape(-1, size)
    same = math.prod(sizes[i] for i in varying) == size and {*map(frozenset, lines.tolist())} == {
        *map(frozenset, groups.tolist())
    }
    names = tuple(mesh)
    return {"axes": tuple(names[i] for i in varying), "group_size": size} if same else {"group_size": size}


def axes_of_pairs(pairs: Sequence[Sequence[int]], mesh: Mapping[str, int]) -> tuple[str, ...]:
    """The axes along which the step's own permute moves anything."""
    places = np.stack(np.unravel_index(np.asarray(pairs, int).reshape(-1, 2), tuple(mesh.values())))
    return tuple(axis for axis, place in zip(mesh, places, strict=True) if (place[:, 0] != place[:, 1]).any())
