"""Which values of a step are images, on whatever mesh: what its convolutions read and make.

A whole step says by its shape how a value lies that convolutions read or make (``images``). A kernel of a program may
have none of its own, so it is told.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import NamedTuple

from ...cut_images import cut_convolutions, parts_of
from ...graph import Graph
from ...images import CONVOLUTION, Image, images_of

Shape = tuple[int, ...]


class Seen(NamedTuple):
    """An image, and its whole ``shape``; none that convolutions make is only ``read``. Where few that one makes
    are cut, a ``part`` of them has so many places.
    """

    image: Image
    shape: Shape
    read: bool
    part: int = 0

    def is_part(self, shape: Shape) -> bool:
        """Whether devices that have so much of it have an image: with a part of what a window goes over they are handed
        more than that before they read it.
        """
        spread = {self.image.features, self.image.batch}
        return not self.read or all(own == shape[dim] for dim, own in enumerate(self.shape) if dim not in spread)

    def is_whole_along(self, shape: Shape) -> bool:
        """Whether devices that have so much of it have it whole along the dim that few images are cut along, the
        last of its places.
        """
        places = [dim for dim in range(len(shape)) if dim not in self.image]
        return bool(places) and shape[places[-1]] == self.shape[places[-1]]


def seen(graph: Graph) -> dict[Shape, Seen]:
    """The images of a graph by their shape, as what comes first has them; loops are not entered."""
    found: dict[Shape, Seen] = {}
    cut = parts_of(graph, cut_convolutions(graph, sys.maxsize))
    for op in graph.ops:
        for value, image in images_of(graph, op) if op.kind == CONVOLUTION else ():
            shape, read = graph.shape(value), value not in op.results
            known = found.setdefault(shape, Seen(image, shape, read, cut.get(shape, 0)))
            found[shape] = known._replace(read=known.read and read)
    return found


def parts(images: Mapping[int, Seen], shapes: Mapping[int, Shape]) -> dict[Shape, Image]:
    """The images among values of which devices have parts of these shapes, by those."""
    found: dict[Shape, Image] = {}
    for value, own in images.items():
        if value in shapes and own.is_part(shapes[value]):
            found.setdefault(shapes[value], own.image)
    return found


def places(images: Mapping[int, Seen], shapes: Mapping[int, Shape]) -> dict[Shape, int]:
    """How many places a part has of those that convolutions make elsewhere and that are cut where they are few, by the
    shapes of the parts of which devices have.
    """
    known = ((shapes[value], own) for value, own in images.items() if own.part and value in shapes)
    return {shape: own.part for shape, own in known if own.is_whole_along(shape)}
