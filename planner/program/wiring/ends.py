"""How values may lie between steps: inside of one the compiler pads dims that do not divide, at its ends nothing is."""

from __future__ import annotations

from collections.abc import Mapping

from ...graph import Sharding
from ...partition.layout import is_even, whole
from ..parted import is_of_axes
from .wires import Level, Wiring


def even_layouts(wiring: Wiring, level: Level, value: int) -> list[Sharding]:
    """The layouts that a value may have between steps, where no dim is padded, and none is split along a part of an
    axis alone: whole if there is no other.
    """
    shape, mesh = level.graph.values[value].shape, wiring.reshards.mesh
    found = wiring.candidates.get(wiring.find((level.number, value)), ())
    written = (layout for layout in found if is_of_axes(layout, tuple(mesh)))
    return [layout for layout in written if is_even(shape, layout, mesh)] or [whole(len(shape))]


def ending(wiring: Wiring, top: Level, pinned: Mapping[int, Sharding]) -> dict[int, list[Sharding]]:
    """The results that have to lie otherwise than they may be made, with how: as they are pinned, or no dim padded."""
    found = {result: [layout] for result, layout in pinned.items()}
    for result in top.graph.results:
        made = top.source.get(result)
        if made is None or result in found or result in wiring.ends:
            continue
        shape = top.graph.values[result].shape
        if not all(is_even(shape, layout, wiring.reshards.mesh) for layout in made.layouts):
            found[result] = even_layouts(wiring, top, result)
    return found
