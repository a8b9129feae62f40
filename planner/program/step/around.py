"""What a step knows of the values of one of its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ...compute.apart import Apart
from ...compute.copies.relaid import Copied, renamed_copies
from ...compute.loops import Staying, renamed
from .seen import Seen, Shape, parts, places


class Around(NamedTuple):
    """Values of a kernel by their numbers: those of the step's arguments that it is the first to convolve (``given``),
    the step's results (``left``), what vector memory holds throughout a loop where it fits (``stays``), what
    convolutions elsewhere read and make (``images``), what meets tables that are scattered into (``tables``), and what
    of that is given to the step or left by it (``edge``), and what the kernel is the first to update though the step is
    only ``lent`` it, what scatters fill (``filled``), what kernels of their own make bits of (``packed``), and the
    images that are added up by what makes them (``summed``). Its products read what turns of a loop ``cut`` out of
    stacks, and results of the step that others make (``kept``): these are ``far`` where it is said, as parts
    may be of ``large`` arguments. What it compares may be ``bare``, an argument that no product makes.
    Kernels of images with gaps lie ``across`` where it is said.
    Of images that are ``masked``, here or elsewhere, bits are left under some layouts, as windows go along these dims:
    else they are not rounded. What is ``relaid`` is copied for a product of a GPU where it is read as it was made.
    """

    given: frozenset[int] = frozenset()
    left: frozenset[int] = frozenset()
    stays: tuple[Staying, ...] = ()
    images: tuple[tuple[int, Seen], ...] = ()
    tables: frozenset[int] = frozenset()
    edge: frozenset[int] = frozenset()
    lent: frozenset[int] = frozenset()
    filled: frozenset[int] = frozenset()
    packed: frozenset[int] = frozenset()
    summed: frozenset[int] = frozenset()
    cut: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    large: frozenset[int] = frozenset()
    far: frozenset[int] = frozenset()
    across: frozenset[int] = frozenset()
    bare: frozenset[int] = frozenset()
    masked: tuple[tuple[int, tuple[int, ...]], ...] = ()
    relaid: tuple[Copied, ...] = ()

    def of_part(self, numbers: Sequence[int]) -> Around:
        """The same of a part of the kernel, of which nothing is the first to convolve; ``numbers`` has its values'."""
        images = dict(self.images)

        def at(of: frozenset[int]) -> frozenset[int]:
            return frozenset(place for place, number in enumerate(numbers) if number in of)

        return Around(
            left=at(self.left),
            stays=renamed(self.stays, numbers),
            images=tuple((place, images[number]) for place, number in enumerate(numbers) if number in images),
            tables=at(self.tables),
            edge=at(self.edge),
            lent=at(self.lent),
            filled=at(self.filled),
            packed=at(self.packed),
            summed=at(self.summed),
            cut=at(self.cut),
            kept=at(self.kept),
            large=at(self.large),
            bare=at(self.bare),
            masked=tuple((numbers.index(value), along) for value, along in self.masked if value in numbers),
            relaid=renamed_copies(self.relaid, numbers),
        )

    def apart(self, shapes: Mapping[int, Shape]) -> Apart:
        """The same for devices that have parts of these shapes."""
        seen = dict(self.images)
        images, cut = parts(seen, shapes), places(seen, shapes)
        own = {"tables": self.tables, "edge": self.edge, "lent": self.lent}
        return Apart(
            given=self.given,
            left=self.left,
            stays=self.stays,
            images=images,
            cut=cut,
            filled=self.filled,
            packed=self.packed,
            far=self.far,
            across=self.across,
            bare=self.bare,
            **own,
        )
