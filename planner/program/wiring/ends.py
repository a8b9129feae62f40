"""How values may lie between steps: inside of one dims that do not divide are padded and axes split into parts, between
them neither is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graph import Sharding
from ...partition.layout import is_even, whole
from ..step.parted import is_of_axes
from .wires import Level, Wiring


def even_layouts(wiring: Wiring, level: Level, value: int) -> list[Sharding]:
    """The layouts that a value may have between steps: whole if there is no other."""
    shape = level.graph.values[value].shape
    found = wiring.candidates.get(wiring.find((level.number, value)), ())
    return [layout for layout in found if _is_between(wiring, shape, layout)] or [whole(len(shape))]


def ending(wiring: Wiring, top: Level, pinned: Mapping[int, Sharding]) -> dict[int, list[Sharding]]:
    """The results that have to lie otherwise than they may be made, with how: as they are pinned, or as they may."""
    found = {result: [layout] for result, layout in pinned.items()}
    for result in top.graph.results:
        made = top.source.get(result)
        if made is None or result in found or result in wiring.ends:
            continue
        shape = top.graph.values[result].shape
        if not all(_is_between(wiring, shape, layout) for layout in made.layouts):
            found[result] = even_layouts(wiring, top, result)
    return found


def _is_between(wiring: Wiring, shape: Sequence[int], layout: Sharding) -> bool:
    """Whether a value may lie so between steps: no dim is padded, and none split along a part of an axis alone."""
    mesh = wiring.reshards.mesh
    return is_even(shape, layout, mesh) and is_of_axes(layout, tuple(mesh))
