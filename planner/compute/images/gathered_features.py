"""What bringing images together takes of which devices have features that fill no lanes.

The compiler gathers such pieces with their last place on the lanes, whatever they were, features outermost. They are
copied so before, and after it all is copied as convolutions want it (seen on v3, v4, v5e, v5p and v6e). Pieces of more
images than that have places have their images on the lanes, and are read as they lie.
"""

from __future__ import annotations

from ...graph import Value
from ...images import LANES, ROWS, Image, batch_on_lanes, laid_elements
from ..coefficients import Coefficients
from ..copies.turning import Side, turning_cycles
from ..work import REGISTER_ELEMENTS, round_up

FIRST_SHARE = 1.45
"""What such a copy takes for v3 of what others do that leave more dims where they were."""


def is_gathered_turned(piece: Value, whole: Value, image: Image) -> bool:
    """Whether an image whose features are gathered has its batch on the lanes then, in pieces and as a whole."""
    many, batch = piece.shape[image.features], piece.shape[image.batch]
    if many >= whole.shape[image.features]:
        return False
    is_narrow = many < LANES and batch > max(_places(piece, image)[-1:], default=batch)
    return is_narrow or batch_on_lanes(many, batch, piece.bits)


def features_cycles(piece: Value, whole: Value, image: Image, of: Coefficients) -> float:
    """Cycles of the copies before and after a gather of an image's features."""
    many, batch = piece.shape[image.features], piece.shape[image.batch]
    if many >= min(LANES, whole.shape[image.features]) or batch_on_lanes(many, batch, piece.bits):
        return 0.0
    if is_gathered_turned(piece, whole, image):
        sent = _side(piece, laid_elements(piece, image, turned=True))
        return turning_cycles(_side(piece, laid_elements(piece, image)), sent, of)
    if not _places(piece, image):
        return 0.0
    share = 1.0 if of.held_near_bytes else FIRST_SHARE
    sides = [(_side(value, laid_elements(value, image)), _by_places(value, image)) for value in (piece, whole)]
    (lying, sent), (read, come) = sides
    return share * (turning_cycles(lying, sent, of) + turning_cycles(come, read, of))


def _places(value: Value, image: Image) -> list[int]:
    """The sizes of an image's places."""
    return [size for dim, size in enumerate(value.shape) if dim not in image]


def _by_places(value: Value, image: Image) -> Side:
    """An image with its last place on the lanes, and the one before it on the rows."""
    *others, rows, lanes = (1, *_places(value, image))
    elements = round_up(rows, ROWS) * round_up(lanes, LANES) * value.shape[image.features] * value.shape[image.batch]
    for size in others:
        elements *= size
    return _side(value, elements)


def _side(value: Value, elements: int) -> Side:
    return Side(elements / REGISTER_ELEMENTS, elements * value.bits / 8)
