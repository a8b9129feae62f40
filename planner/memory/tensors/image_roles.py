"""How images lie, and what convolutions read of them."""

from __future__ import annotations

from typing import NamedTuple

from ...images import Image


class Lying(NamedTuple):
    """How images of a shape lie: their dims, whether few may be cut, whether the batch is on the lanes anyway."""

    image: Image
    may_cut: bool
    is_turned: bool


class Reading(NamedTuple):
    """How convolutions read an image: the places of the filter whose gradient does, along the dim that images are cut
    along, and whether what they read is made of it as they do, for themselves and for the gradient of a filter.
    """

    shifts: int = 0
    is_convolved: bool = False
    is_for_gradient: bool = False

    def with_also(self, shifts: int, *, is_made_of: bool, is_gradient: bool) -> Reading:
        """The same, read by one more."""
        return Reading(
            max(self.shifts, shifts),
            self.is_convolved or (is_made_of and not is_gradient),
            self.is_for_gradient or (is_made_of and is_gradient),
        )

    @property
    def copies(self) -> int:
        """The copies that lie beside it in bfloat16 of a bfloat16 image: where convolutions read the image itself, it
        stands for one. Seen on v5p, v5e and v6e.
        """
        return max(1, self.is_convolved + self.is_for_gradient)
