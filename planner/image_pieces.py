"""Images whose features loops take two devices' at a time, as their kernel goes round, and how these lie."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .cut_images import SMALLEST_BATCH, cut_convolutions
from .fusion.nature import SLICE, UPDATE
from .graph import Graph
from .images import CONVOLUTION, Image, batch_on_lanes, images_of, is_gradient_of_kernel

BOTH_WAYS = 2
"""Devices whose parts a product in a loop meets at once: parts go round both ways."""
NARROW_BITS = 16

Shape = tuple[int, ...]


class Piece(NamedTuple):
    """The features of two devices that a convolution reads or makes of an image: both values, and the image's dims.

    ``is_read`` if it is cut out of the image, else it is written into it; ``comes_back`` if a kernel's gradient has it
    for one, to convolve another image with. ``bits`` are those of a number that the convolution makes.
    """

    part: int
    whole: int
    image: Image
    is_read: bool
    is_of_gradient: bool
    comes_back: bool = False
    bits: int = NARROW_BITS


def pieces_of(body: Graph, *, fewest: int = 2) -> Iterator[Piece]:
    """What convolutions of a loop's body take of images, or put into them, by their features, of so many at least.

    A single image is left out where none is asked for: it has no batch for the lanes.
    """
    cut = {op.results[0]: op.operands[0] for op in body.ops if op.kind == SLICE and "step" in op.attributes}
    put = {op.operands[1]: op.results[0] for op in body.ops if op.kind == UPDATE}
    for op in body.ops:
        if op.kind != CONVOLUTION:
            continue
        for part, image in images_of(body, op):
            whole = cut.get(part, put.get(part))
            several = body.shape(part)[image.batch] >= fewest
            if whole is not None and several and body.shape(part)[image.features] < body.shape(whole)[image.features]:
                is_gradient = is_gradient_of_kernel(body, op)
                comes_back = is_gradient and part == op.operands[1]
                bits = body.values[op.results[0]].bits
                yield Piece(part, whole, image, part in cut, is_gradient, comes_back, bits)


def with_lanes(shape: Shape, image: Image, bits: int) -> Image:
    """An image's dims as loops lay it out: a single one has the last of its places for the batch, which features share
    lanes and rows with, as v4 and v5p have it, where what its convolution makes has so few ``bits`` that two numbers
    share a row. Where that is float32 it has its features on the lanes (v5p, v5e and v6e).
    """
    if shape[image.batch] != 1 or bits > NARROW_BITS:
        return image
    return Image(image.features, max(dim for dim in range(len(shape)) if dim not in image))


def looped_images(graph: Graph) -> dict[Shape, Image]:
    """The images, by their shape, that loops of several turns take in pieces, or put together of these."""
    return {body.shape(piece.whole): piece.image for body, piece in _pieces(graph)}


def turned_shapes(graph: Graph) -> frozenset[Shape]:
    """The shapes of the images that loops of several turns take in pieces which lie with the batch on the lanes.

    Not those that convolutions outside of loops cut: these lie in parts, and loops have copies (v5p, v5e and v6e).
    """
    lying = ((body.shape(piece.whole), features_and_batch(body, piece)) for body, piece in _pieces(graph))
    turned = frozenset(shape for shape, each in lying if batch_on_lanes(*each, NARROW_BITS))
    return turned - _cut_shapes(graph) if turned else turned


def _cut_shapes(graph: Graph) -> frozenset[Shape]:
    """The shapes of what convolutions outside of loops read and make in parts, on the chips whose compiler makes loops
    of convolutions: v4 and later.
    """
    cut = cut_convolutions(graph, SMALLEST_BATCH).values()
    return frozenset(graph.shape(value) for op in cut for value, _ in images_of(graph, op))


def _pieces(graph: Graph) -> Iterator[tuple[Graph, Piece]]:
    for loop in graph.nesting:
        for body in loop.bodies if loop.turns else ():
            for piece in pieces_of(body):
                yield body, piece
        for body in loop.bodies:
            yield from _pieces(body)


def is_turned_for_gradient(body: Graph, piece: Piece) -> bool:
    """Whether a gradient of a kernel has a piece's batch on the lanes: it does where both ways pad alike."""
    features, batch = features_and_batch(body, piece)
    return piece.is_of_gradient and not batch_on_lanes(batch, features, NARROW_BITS)


def lies_turned(body: Graph, piece: Piece) -> bool:
    """Whether a piece leaves fewer lanes empty with what stands for its batch on them than with its features."""
    image = with_lanes(body.shape(piece.whole), piece.image, piece.bits)
    return batch_on_lanes(*features_and_batch(body, piece._replace(image=image)), NARROW_BITS)


def features_and_batch(body: Graph, piece: Piece) -> tuple[int, int]:
    """The features of one device in a piece, and its images."""
    shape = body.shape(piece.part)
    return shape[piece.image.features] // BOTH_WAYS, shape[piece.image.batch]
