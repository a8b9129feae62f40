"""A matrix product as loops over batch, contracted and free dims, and the choices of its split."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ....dsl.records import record
from ...graph import Axes, Sharding
from ..layout import Mesh, ways

Split = Mapping[int, Axes]


@record(frozen=True, kw_only=True)
class Loops:
    """The loops of a product: ``sizes`` by factor, and the factor of each dim of both operands and the result.
    ``shapes`` are their shapes where these are not as large as the factors: a convolution's window moves on by several
    places, or what it reads is spread.

    ``shared`` says of each operand whether other products read it too, ``window_flops_per_byte`` how many operations
    hide a byte of the product's collective in a loop of permutes (None: there are no such loops), ``fewest_parts`` how
    many parts such a loop has at least.
    """

    sizes: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]
    result: tuple[int, ...]
    bits: tuple[int, int, int]
    mesh: Mesh
    shapes: tuple[tuple[int, ...], ...] = ()
    shared: tuple[bool, ...] = (False, False)
    window_flops_per_byte: float | None = None
    fewest_parts: int = 8

    @cached_property
    def batch(self) -> tuple[int, ...]:
        """The factors of all three."""
        return tuple(f for f in self.left if f in self.right and f in self.result)

    @cached_property
    def contracted(self) -> tuple[int, ...]:
        """The factors of both operands that are summed over."""
        return tuple(f for f in self.left if f in self.right and f not in self.result)

    @cached_property
    def left_free(self) -> tuple[int, ...]:
        """The factors of the left operand and the result alone."""
        return tuple(f for f in self.left if f not in self.right and f in self.result)

    @cached_property
    def right_free(self) -> tuple[int, ...]:
        """The factors of the right operand and the result alone."""
        return tuple(f for f in self.right if f not in self.left and f in self.result)

    @cached_property
    def is_convolution(self) -> bool:
        """Whether some factors, those of a window, are of one of the three alone."""
        found = [*self.left, *self.right, *self.result]
        return any(found.count(factor) == 1 for factor in found)

    def parts(self, split: Split, factors: Iterable[int]) -> int:
        """Into how many parts a split cuts some factors together."""
        count = 1
        for factor in factors if split else ():
            if axes := split.get(factor):
                count *= ways(axes, self.mesh)
        return count

    def num_bytes(self, split: Split, side: int) -> int:
        """Bytes of one device's part of the left (0) or right (1) operand or the result (2)."""
        number = self.bits[side]
        for factor in (self.left, self.right, self.result)[side]:
            axes = split.get(factor)
            number *= -(-self.sizes[factor] // ways(axes, self.mesh)) if axes else self.sizes[factor]
        return number // 8

    def elements(self, split: Split, side: int) -> int:
        """Numbers in one device's part of the left (0) or right (1) operand or the result (2)."""
        number = 1
        for factor, size in zip((self.left, self.right, self.result)[side], self.shape(side), strict=True):
            number *= -(-size // ways(split.get(factor, ()), self.mesh))
        return number

    def flops(self, split: Split) -> int:
        """Operations of one device's product where its loops are split so: those of a window count for a convolution,
        though its result alone may have them, as the gradient of a kernel that moves on by several places has.
        """
        number = 2
        for factor in {*self.left, *self.right, *self.result}:
            number *= -(-self.sizes[factor] // ways(split.get(factor, ()), self.mesh))
        return number

    def layout(self, split: Split, side: int) -> Sharding:
        """A split of one of the three as a layout of its dims."""
        return tuple(split.get(f, ()) for f in (self.left, self.right, self.result)[side])

    def shape(self, side: int) -> tuple[int, ...]:
        """The global shape of one of the three."""
        if self.shapes:
            return self.shapes[side]
        return tuple(self.sizes[f] for f in (self.left, self.right, self.result)[side])


@record(frozen=True, slots=True)
class Reduction:
    """Partial results summed over ``axes``; then each device keeps its part of ``scattered`` (factor: axes)."""

    axes: Axes
    scattered: Split = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Windowed:
    """A collective in a loop with the product: which operand goes round (None: the sums), over which axes.

    ``factor`` is the loop along which a turn takes its parts.
    """

    moving: int | None
    axes: Axes
    factor: int


@record(frozen=True, slots=True, kw_only=True)
class Choice:
    """One way to compute a product: the splits that it needs of both operands and what it makes.

    ``raw`` is the split of each device's product before the ``reductions``, ``made`` the one after them. ``paths`` are
    the splits that the left and the right operand pass through on their way, and the result after ``made``.
    """

    left: Split
    right: Split
    raw: Split
    made: Split
    reductions: tuple[Reduction, ...] = ()
    windowed: Windowed | None = None
    paths: tuple[tuple[Split, ...], ...] = ((), (), ())

    def within(self, ask: Ask, left: Split, right: Split, result: Split) -> Choice:
        """The choice for a group of devices, which was asked ``ask``, with the group's own split put before."""
        first, second, third = self.paths
        return replace(
            self,
            left=joined(left, self.left),
            right=joined(right, self.right),
            raw=joined(result, self.raw),
            made=joined(result, self.made),
            paths=(
                tuple(joined(left, split) for split in (ask.left, *first)),
                tuple(joined(right, split) for split in (ask.right, *second)),
                tuple(joined(result, split) for split in (*third, ask.result)),
            ),
        )


@record(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is to be computed: the splits that operands and result have, over the ``axes`` of one group of devices.

    ``outer`` is the split that the groups themselves make, ``gathered`` says that they make an operand whole for which
    XLA puts what is left of the product into no loop, unless ``may_sum`` and its sums go round.
    """

    left: Split
    right: Split
    result: Split
    axes: frozenset[str]
    outer: Split = field(default_factory=dict)
    gathered: bool = False
    may_sum: bool = False


def joined(first: Split, second: Split) -> dict[int, Axes]:
    """Two splits of the same factors, the first one major."""
    found = dict(first)
    for factor, axes in second.items():
        found[factor] = (*found[factor], *axes) if factor in found else axes
    return found


def dropped(split: Split, axes: Iterable[str]) -> dict[int, Axes]:
    """A split without some axes."""
    gone = frozenset(axes)
    return {f: kept for f, own in split.items() if (kept := tuple(a for a in own if a not in gone))}


def renamed(split: Split, names: Mapping[str, str]) -> dict[int, Axes]:
    """A split with axes taking each other's places."""
    return {f: tuple(names.get(a, a) for a in own) for f, own in split.items()}


def axes_of(split: Split) -> Axes:
    """All axes of a split."""
    return tuple([axis for axes in split.values() for axis in axes])
