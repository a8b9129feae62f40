"""How the chips' compilers convolve, as read off the cycles of compiled convolutions: what differs between them."""

from __future__ import annotations

from typing import NamedTuple

from .coefficients import Coefficients


class Manner(NamedTuple):
    """How a chip's compiler convolves: ``few_rows`` are those that a register of few images takes at least, and
    ``packs_all`` if positions share a depth also where what leaves has the batch on the lanes, where windows move on
    by several places, and of batches of any size, in whichever layout they are. ``loading`` are the
    rows that bringing a row of ``columns`` of a kernel into a square takes where an image has gaps, ``tap_operations``
    the vector operations for each position of a window whose features stay apart. ``picture_rows`` are those that a
    register of images of so few features as pictures have takes for each position of a window, ``picture_operations``
    the vector operations for each register that is made of it there, ``tile_cycles`` what copying a tile of such an
    image into the large memory takes, and ``part_operations`` vector operations what shifts or copies cut images takes,
    for each 1024 of their numbers that are read or written.
    ``ring_operations`` are those at each place at least where few images are convolved to features of each of two
    devices, ``summed_operations`` where from those, and ``ring_gradient_operations`` for a kernel's gradient.
    ``place_operations`` are those of windows of one place over few whole images, for each register of features made,
    and ``apart_operations`` those of taking apart what a ring has made, of each place and device, where a single image
    lies otherwise than few: none where it does not.
    """

    few_rows: float
    packs_all: bool
    loading: float
    gap_operations: float
    tap_operations: float
    picture_rows: float
    gradient_rows: float
    picture_operations: float
    tile_cycles: float
    part_operations: float
    ring_operations: float
    summed_operations: float
    ring_gradient_operations: float
    place_operations: float = 0.0
    apart_operations: float = 0.0


FIRST, SECOND, LATER = (
    Manner(3.2, False, 0.245, 3.5, 5, 2, 1, 0, 10, 18, 0, 0, 0, 22),
    Manner(3.2, False, 0.24, 4.2, 5, 2, 1.3, 0, 5.6, 22, 57, 45, 108),
    Manner(8, True, 0.066, 5.6, 7.5, 1, 0.8, 1.45, 11.6, 24, 81, 52, 26),
)
"""As seen on v3, on v4, and on v5e and v6e."""

PAIRED = LATER._replace(
    gap_operations=6.9,
    gradient_rows=1,
    tile_cycles=6.0,
    ring_operations=105,
    summed_operations=66,
    ring_gradient_operations=36,
    apart_operations=50,
)
PAIRED_NEAR_BYTES = 2**26
"""As seen on v5p, whose two cores have less vector memory than one of v5e, and share no place of an image."""


def manner_of(of: Coefficients) -> Manner:
    """The manner of a chip, by what its compiler keeps in vector memory, and whether it takes small values whole."""
    if of.near_total_bytes:
        return PAIRED if of.near_total_bytes < PAIRED_NEAR_BYTES else LATER
    return SECOND if of.whole_bytes else FIRST
