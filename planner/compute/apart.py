"""What is known of a step where some of its kernels are priced by themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from ...dsl.records import record
from ..images import Image
from .loops import Staying

Shape = tuple[int, ...]


@record(frozen=True, slots=True, kw_only=True)
class Apart:
    """What is known of a step where some of its kernels are priced apart from the others.

    ``given`` are the values that are its arguments, ``left`` those that are its results, ``stays`` those that vector
    memory holds for good if they fit, as a loop's turns hand them on; ``images`` has shapes of what is
    convolved elsewhere, ``tables`` the values that meet what is scattered into, and ``edge`` what of those is given or
    left, ``lent`` what they are the first to update of its arguments that are not donated, ``filled`` what scatters
    fill, ``packed`` what kernels of their own make bits of. What products read is fetched while others run, but for
    what is ``far``, what is compared they make themselves, but for what is ``bare``, and no gradient lies transposed.
    Kernels of convolutions that lie ``across`` were gathered of pieces that do. Few images that convolutions elsewhere
    make are ``cut`` in parts of so many places, by their shape.
    """

    given: Collection[int] = ()
    left: Collection[int] = ()
    stays: Sequence[Staying] = ()
    images: Mapping[Shape, Image] = field(default_factory=dict)
    tables: Collection[int] = ()
    edge: Collection[int] = ()
    lent: Collection[int] = ()
    filled: Collection[int] = ()
    packed: Collection[int] = ()
    far: Collection[int] = ()
    bare: Collection[int] = ()
    across: Collection[int] = ()
    cut: Mapping[Shape, int] = field(default_factory=dict)
