"""What is known of each place of images, as sums over features are that a norm of them has.

It lies with the batch on the lanes, as sums of registers of images come, and is spread over features again wherever
images are computed with it, or was summed over them: moving it between lanes and rows takes a part of what going
through the image does (v5e: bf16[8,56,56,96] reduced with one such read 53692 cycles, with two 61705).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...graph import Graph
from ...images import ROWS, Image, batch_on_lanes, laid_elements
from ..work import LANES, WORD_BYTES, padded_elements, round_up

WORD_BITS, NARROW_BITS = 32, 16
MOVED = 0.22
"""What of the bytes of an image in float32 moving such a value takes, seen on v5e."""

Shape = tuple[int, ...]


class PlaceSums:
    """Those of a graph's ``images``, which are so many that they fill registers' rows."""

    def __init__(self, graph: Graph, images: Mapping[Shape, Image]) -> None:
        self._graph, self._given = graph, frozenset(graph.arguments)
        self._images = {
            (*shape[: image.features], *shape[image.features + 1 :]): (shape, image)
            for shape, image in images.items()
            if shape[image.batch] >= ROWS and not batch_on_lanes(shape[image.features], shape[image.batch], NARROW_BITS)
        }

    def growth(self, value: int) -> float:
        """How much larger than where it pads least such a value is; one of others."""
        found = self._of(value)
        if found is None:
            return 1.0
        shape, image = found
        batch, own = shape[image.batch], self._graph.values[value]
        return max(1.0, own.num_elements // batch * round_up(batch, LANES) / padded_elements(own.shape))

    def moved_bytes(self, around: Sequence[int]) -> int:
        """What moving these takes where a kernel reads or makes them and goes through their images, in bytes that it
        goes through besides.
        """
        shapes = {self._graph.shape(value) for value in around} if self._images else set[Shape]()
        found = [each for value in around if (each := self._of(value)) is not None] if shapes else []
        return sum(self._spread_bytes(*each) for each in found if each[0] in shapes)

    def _spread_bytes(self, shape: Shape, image: Image) -> int:
        like = next(value for value in self._graph.values if value.shape == shape)
        return int(MOVED * WORD_BYTES * laid_elements(like, image))

    def _of(self, value: int) -> tuple[Shape, Image] | None:
        held = self._graph.values[value]
        is_sum = held.bits == WORD_BITS and held.dtype.startswith("f") and value not in self._given
        return self._images.get(held.shape) if is_sum and len(held.shape) > 1 else None
