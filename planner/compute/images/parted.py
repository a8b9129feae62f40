"""What images cost that are cut into parts: parts are put beside each other's edges, and shifted for gradients.

Each of these steps is a kernel of its own, whatever the convolution takes. All pass numbers of 16 bits, in which
convolutions read, and wait for the vector units. Counted in compiled programs, of which most steps say how often they
read or write an image; a margin of few columns is a step as well, which takes no longer than it starts.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...fusion.nature import NORMED, NORMED_BY_ALL
from ...graph import Graph
from ..coefficients import Coefficients
from ..work import REGISTER_ELEMENTS

WIDE_EDGE = 256
WAITED_BYTES, NEAR_SHARE = 0.3, 0.3
"""How much of moving their bytes comes on top of the vector units' work, but where the compiler counts none of what is
near, as on v6e, and what part of vector memory an image is no larger than that is.
"""


class Steps(NamedTuple):
    """How often numbers of an image are read or written, in how many kernels, and cycles besides for 1024 of them."""

    passes: float
    kernels: int
    cycles: float = 0.0


EDGED, GIVEN_EDGED = Steps(3, 4), Steps(8, 5)
"""For a convolution: each part with the next one's edge; what is a step's argument is cut and copied first."""

NORMED_EDGED, NORMED_RETURNED = Steps(0.3, 4), Steps(1, 1)
"""The same of what a kernel of its own computes by sums over all images, and what of it comes back: that leaves it so,
but for the edges.
"""

SHIFTED, SHIFTED_WIDE, GIVEN_SHIFTED = Steps(13, 5), Steps(7, 5), Steps(10, 5)
"""For the gradient of a kernel of three places a row: shifts of each part, which narrower squares have laid beside each
other.
"""

FURTHER = Steps(9, 4)
"""The same of each place beyond the third."""

SHIFTED_ONCE = Steps(4, 1)
"""The same of a kernel of two places a row."""

WHOLE = Steps(3, 3)
"""For the gradient of a kernel with gaps, which is of whole images: they are laid out with the batch where it was."""

RETURNED = Steps(3, 3)
"""What comes back to such an image: without its margins, and with the batch where gradients of kernels want it."""

GIVEN_PLACES = Steps(1.5, 1)
"""For windows of one place, of a step's argument: a copy in parts, and another for the gradient of the kernel."""

REPEATED = Steps(6, 3)
"""For windows of one place that move on by several, where parts are no whole steps: they are widened to these."""

WIDENED, WIDENED_KERNELS, MARGIN_KERNELS, MARGIN = Steps(2, 1), 4, 2, 1.125
"""For windows of one place over an image with gaps: its margin widens parts, and that and its mask are each laid out
anew, widened and cut off again, each time by a kernel that reads and writes an image as large as what is made of it, or
as that with its margin (v5e and v6e).
"""

LONGEST_ROUND, LOOPED_CYCLES = 4 << 20, 21.0
"""Of how many numbers such a kernel's code goes through the image as it lies, and its cycles for each 1024 of a larger
one, in pieces (v6e: 6 up to 4096 times 1024 numbers, of bits or of bfloat16, 21 of 4608 to 16384; v5e: 11, and 23).
"""

TOGETHER = Steps(16, 8)
"""For the gradient of a kernel that is not of parts: they are put together again, without filling lanes."""


JOINED, JOINED_SHIFTED, JOINED_APART = Steps(3.6, 3, 4.0), Steps(7.3, 5, 18.0), Steps(1.3, 4, 29.0)
"""What is put beside neighbours' rows: parts are put together for it, and parted again for a convolution or, shifted,
for the gradient of a kernel, on the way of which a register holds few images. What moves numbers over lanes takes as
many cycles on v5e and v6e (seen with 1, 2 and 4 images of 34, 98 and 130 rows).
"""


def steps_cycles(steps: Steps, numbers: int, operations: float, of: Coefficients) -> float:
    """Cycles of steps over an image of so many numbers as it is laid out, so many vector operations for each 1024."""
    num_bytes = 2 * numbers
    share = of.near_read_share if num_bytes <= NEAR_SHARE * of.near_total_bytes else 1.0
    waited = share * WAITED_BYTES * num_bytes * of.byte_cycles
    once = operations * of.register_cycles * math.ceil(numbers / REGISTER_ELEMENTS) + waited
    once = steps.passes * once + steps.cycles * numbers / REGISTER_ELEMENTS
    return once + steps.kernels * (of.start_cycles + of.step_cycles)


def widened_cycles(numbers: int, operations: float, of: Coefficients) -> float:
    """Cycles of widening the parts of which so many numbers are made."""
    looped = LOOPED_CYCLES / REGISTER_ELEMENTS
    return sum(
        looped * size if size > LONGEST_ROUND else steps_cycles(WIDENED, size, operations, of)
        for size in _laid_anew(numbers)
    )


def rounds_of(numbers: int) -> int:
    """How many numbers are gone through as they lie, all kernels that widen parts together."""
    return sum(size for size in _laid_anew(numbers) if size <= LONGEST_ROUND)


def _laid_anew(numbers: int) -> list[int]:
    return [numbers] * WIDENED_KERNELS + [int(MARGIN * numbers)] * MARGIN_KERNELS


def normed(graph: Graph) -> frozenset[int]:
    """What is computed of images by sums over all of them for convolutions of their parts."""
    return frozenset(value for op in graph.ops if op.attributes.get(NORMED) == NORMED_BY_ALL for value in op.results)
