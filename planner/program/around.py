"""What a step knows of the values of one of its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..compute.loops import Staying, renamed
from ..compute.price import Apart
from .seen import Seen, Shape, parts


class Around(NamedTuple):
    """Values of a kernel by their numbers: those of the step's arguments that it is the first to convolve (``given``),
    the step's results (``left``), what vector memory holds throughout a loop where it fits (``stays``), and what
    convolutions elsewhere read and make (``images``).
    """

    given: frozenset[int] = frozenset()
    left: frozenset[int] = frozenset()
    stays: tuple[Staying, ...] = ()
    images: tuple[tuple[int, Seen], ...] = ()

    def of_part(self, numbers: Sequence[int]) -> Around:
        """The same of a part of the kernel, of which nothing is the first to convolve; ``numbers`` has its values'."""
        images = dict(self.images)
        return Around(
            left=frozenset(place for place, number in enumerate(numbers) if number in self.left),
            stays=renamed(self.stays, numbers),
            images=tuple((place, images[number]) for place, number in enumerate(numbers) if number in images),
        )

    def apart(self, shapes: Mapping[int, Shape]) -> Apart:
        """The same for devices that have parts of these shapes."""
        return Apart(given=self.given, left=self.left, stays=self.stays, images=parts(dict(self.images), shapes))
