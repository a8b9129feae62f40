"""Every way to fold a machine into a few mesh axes: how large each is and which physical dims it lies on.

Two foldings are the same where no collective can tell them apart: axes in another order, torus dims of one length
exchanged, another stride behind a switch. A folding *covers* another one whose axes are products of its own, for a dim
can be split over several axes: only foldings that no other covers need to be solved.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, permutations, product

from ...dsl.plan import Axis, Mesh, OverDim
from ..device_order import mesh_problems
from ..links import links_of
from ..topology import Machine

MAX_AXES = 3
NAMES = ("x", "y", "z")


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """What an axis takes of one physical dim: ``size`` positions, ``stride`` apart."""

    dim: str
    size: int
    stride: int


FoldedAxis = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Folding:
    """Axes, major first where they share a dim; together they take the whole machine."""

    axes: tuple[FoldedAxis, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        """How many devices lie along each axis."""
        return tuple(math.prod(part.size for part in axis) for axis in self.axes)

    def mesh(self, machine: Machine, names: Sequence[str] = NAMES) -> Mesh:
        """The mesh with axes of these names."""
        whole = dict(machine.dims)
        return Mesh(
            axes=tuple(
                Axis(name=name, size=size, over=tuple(_over(part, whole) for part in axis))
                for name, size, axis in zip(names, self.sizes, self.axes, strict=False)
            )
        )

    def __str__(self) -> str:
        return " ".join("*".join(f"{p.dim}:{p.size}" for p in axis) for axis in self.axes)


def foldings(machine: Machine, max_axes: int = MAX_AXES) -> tuple[Folding, ...]:
    """The distinct foldings of a machine into at most ``max_axes`` axes; a machine of one device has an empty axis."""
    symmetry = _Symmetry.of(machine)
    found: dict[object, Folding] = {}
    for folding in _all(machine, max_axes):
        present = Folding(tuple(axis for axis in folding.axes if axis) or ((),))
        found.setdefault(symmetry.key(present), present)
    return tuple(found.values())


def filled(machine: Machine, axes: Sequence[Axis]) -> tuple[Mesh, ...]:
    """The meshes that these axes may be, in their order, with sizes where they say ``auto``.

    What is said stays: a size, and the physical dims that an axis lies on. An axis that has no size is given one, and
    dims to lie on unless it says them. Device orders that cannot be told apart are given once.
    """
    symmetry = _Symmetry.of(machine)
    found: dict[object, Mesh] = {}
    for folding in _all(machine, len(axes)):
        given = tuple(
            _settled(own, new) for own, new in zip(axes, folding.mesh(machine, _names(axes)).axes or (), strict=True)
        )
        mesh = Mesh(axes=given)
        fits = all(own.size in (None, size) for own, size in zip(axes, folding.sizes, strict=True))
        lies = all(_lies(own, new) for own, new in zip(axes, folding.axes, strict=True))
        if fits and lies and not mesh_problems(mesh, machine):
            found.setdefault(symmetry.key_in_order(folding), mesh)
    return tuple(found.values())


def _lies(own: Axis, new: FoldedAxis) -> bool:
    """Whether a folded axis has a part of each physical dim that the axis is said to lie on, and of no other one."""
    return own.over is None or {over.name for over in own.over} == {part.dim for part in new}


def _settled(own: Axis, new: Axis) -> Axis:
    """An axis as it was said, with a size where it had none, and dims where it had neither."""
    if own.size is not None:
        return own
    return replace(own, size=new.size, over=own.over or new.over or None)


def _names(axes: Sequence[Axis]) -> list[str]:
    return [axis.name for axis in axes]


def uncovered(machine: Machine, listed: Sequence[Folding]) -> tuple[Folding, ...]:
    """Those of ``listed`` that no other one covers."""
    symmetry = _Symmetry.of(machine)
    covered = {symmetry.key(coarse) for folding in listed for coarse in coarser(folding)}
    return tuple(folding for folding in listed if symmetry.key(folding) not in covered)


def coarser(folding: Folding) -> Iterator[Folding]:
    """The foldings that this one covers: each with two of the axes made one, and on."""
    for i, j in combinations(range(len(folding.axes)), 2):
        together = merged(folding.axes[i], folding.axes[j])
        if together is not None:
            rest = [axis for k, axis in enumerate(folding.axes) if k not in (i, j)]
            axes = _in_order([*rest, together])
            if axes is not None:
                yield Folding(axes)
                yield from coarser(Folding(axes))


def merged(major: FoldedAxis, minor: FoldedAxis) -> FoldedAxis | None:
    """Two axes as one; None where they take parts of a dim that are not next to each other."""
    parts = {part.dim: part for part in major}
    for part in minor:
        other = parts.get(part.dim)
        if other is None:
            parts[part.dim] = part
            continue
        outer, inner = (other, part) if other.stride > part.stride else (part, other)
        if outer.stride != inner.stride * inner.size:
            return None
        parts[part.dim] = Part(part.dim, outer.size * inner.size, inner.stride)
    return tuple(parts.values())


def _all(machine: Machine, max_axes: int) -> Iterator[Folding]:
    """Every folding, with repetitions: each dim cut into a part for each axis, major first."""
    cuts = [[(name, cut) for cut in factorizations(size, max_axes)] for name, size in machine.dims]
    for chosen in product(*cuts):
        axes: list[list[Part]] = [[] for _ in range(max_axes)]
        for name, cut in chosen:
            stride = math.prod(cut)
            for axis, size in zip(axes, cut, strict=True):
                stride //= size
                if size > 1:
                    axis.append(Part(name, size, stride))
        yield Folding(tuple(tuple(axis) for axis in axes))


@cache
def factorizations(number: int, count: int) -> tuple[tuple[int, ...], ...]:
    """The ways to write a number as a product of ``count`` numbers in order."""
    if count == 1:
        return ((number,),)
    divisors = (d for d in range(number, 0, -1) if number % d == 0)
    return tuple((d, *rest) for d in divisors for rest in factorizations(number // d, count - 1))


def _in_order(axes: Sequence[FoldedAxis]) -> tuple[FoldedAxis, ...] | None:
    """The axes in an order in which those that share a dim have the major part first; None where there is none."""
    for order in permutations(axes):
        strides: dict[str, list[int]] = {}
        for axis in order:
            for part in axis:
                strides.setdefault(part.dim, []).append(part.stride)
        if all(own == sorted(own, reverse=True) for own in strides.values()):
            return order
    return None


def _over(part: Part, whole: dict[str, int]) -> OverDim:
    return OverDim(name=part.dim, size=None if part.size == whole[part.dim] else part.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Symmetry:
    """What of a machine cannot be told apart: dims that may change places, dims on which a stride is nothing."""

    renamings: tuple[dict[str, str], ...]
    flat: frozenset[str]

    @classmethod
    def of(cls, machine: Machine) -> _Symmetry:
        links, chip = links_of(machine), machine.chip
        torus = links.torus.dims if links.torus else ()
        wraps = dict(zip(torus, links.torus.wraps, strict=True)) if links.torus else {}
        hosts = dict(zip(chip.dims, chip.host, strict=False))
        alike: dict[object, list[str]] = {}
        for name, size in machine.dims:
            kind = (size, wraps[name], hosts.get(name)) if name in wraps else name
            alike.setdefault(kind, []).append(name)
        orders = product(*(permutations(names) for names in alike.values()))
        before = [name for names in alike.values() for name in names]
        renamings = tuple(dict(zip(before, (n for names in order for n in names), strict=True)) for order in orders)
        return cls(renamings=renamings, flat=frozenset(n for n, _ in machine.dims if n not in wraps))

    def key(self, folding: Folding) -> object:
        """What all foldings that cannot be told apart have in common."""
        return min(tuple(sorted(self._axes(folding, renaming))) for renaming in self.renamings)

    def key_in_order(self, folding: Folding) -> object:
        """The same where axes have names and so cannot change places."""
        return min(tuple(self._axes(folding, renaming)) for renaming in self.renamings)

    def _axes(self, folding: Folding, renaming: dict[str, str]) -> list[tuple[tuple[str, int, int], ...]]:
        return [
            tuple(sorted((renaming[p.dim], p.size, 0 if p.dim in self.flat else p.stride) for p in axis))
            for axis in folding.axes
        ]
