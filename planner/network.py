"""A mesh laid over a machine, as the network sees it: where each axis lies, and what it shares."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np

from ..dsl.plan import Mesh
from .device_order import device_numbers
from .placement import Placement, place
from .topology import Machine

PART = re.compile(r"(.+):\((\d+)\)(\d+)$")
MOST = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A machine and a mesh over it. ``numbers`` are the device numbers, in an array shaped as ``mesh``, major first."""

    machine: Machine
    mesh: Mapping[str, int]
    numbers: np.ndarray

    def placement(self, axes: Iterable[str]) -> Placement:
        """Where a collective over these axes of the mesh lies. Raises ``KeyError`` for an axis that there is not."""
        over = tuple(axes)
        if not self.mesh.keys() >= set(over):
            cut = self.in_parts(over)
            return cut.placement(cut.parts(over))
        placed = place(self.machine, self.groups(over))
        used = {span.dim for span in placed.spans}
        others = [axis for axis in self.mesh if axis not in over]
        shared = [axis for axis in others if used & {span.dim for span in place(self.machine, self._line(axis)).spans}]
        return replace(placed, shared_with=tuple(shared))

    def groups(self, axes: Iterable[str]) -> np.ndarray:
        """The device numbers that a collective over these axes joins, (groups, devices of each).

        An axis may be a part of one of the mesh's: ``y:(2)4`` is four of its positions, with two parts major to it.
        """
        axes = tuple(axes)
        if not self.mesh.keys() >= set(axes):
            cut = self.in_parts(axes)
            return cut.groups(cut.parts(axes))
        inside = [self._position(axis) for axis in axes]
        outside = [i for i in range(self.numbers.ndim) if i not in inside]
        size = int(np.prod([self.numbers.shape[i] for i in inside], dtype=np.int64))
        return self.numbers.transpose(outside + inside).reshape(-1, size)

    def shift(self, axis: str, by: int = 1, *, around: bool = False) -> np.ndarray:
        """The (pairs, 2) device numbers, from and to, of a halo exchange: each device sends to the one ``by`` on.

        ``around`` says that the last sends to the first.
        """
        along = np.moveaxis(self.numbers, self._position(axis), 0)
        pairs = np.stack([along, np.roll(along, -by, axis=0)], axis=-1)
        kept = pairs if around else pairs[: len(pairs) - by] if by >= 0 else pairs[-by:]
        return kept.reshape(-1, 2)

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The device numbers at these positions of the mesh's flat order, in which compiled programs count."""
        return np.asarray(self.numbers.ravel()[positions])

    def _line(self, axis: str) -> np.ndarray:
        """The devices along one axis, at the origin of the others."""
        position = self._position(axis)
        return self.numbers[tuple(slice(None) if i == position else 0 for i in range(self.numbers.ndim))][None, :]

    def in_parts(self, axes: Iterable[str]) -> Network:
        """The same network with its axes cut so that each of these, or its parts, are axes of the mesh."""
        parts = [self._span(axis) for axis in dict.fromkeys(axes) if axis not in self.mesh]
        if not parts:
            return self
        cuts = {axis: {1, size} for axis, size in self.mesh.items()}
        for axis, major, size in parts:
            cuts[axis] |= {major, major * size}
        sizes = {name: size for axis in self.mesh for name, size in _between(axis, sorted(cuts[axis]))}
        return replace(self, mesh=sizes, numbers=self.numbers.reshape(tuple(sizes.values())))

    def parts(self, axes: Iterable[str]) -> tuple[str, ...]:
        """The axes of this mesh that these, each one of its axes or several in a row, consist of, each once."""
        return tuple(dict.fromkeys(part for axis in axes for part in self._parts(axis)))

    def _parts(self, axis: str) -> Iterator[str]:
        if axis in self.mesh:
            yield axis
            return
        own = [(part, PART.match(part)) for part in self.mesh]
        found = None if any(cut and cut[1] == axis for _, cut in own) else PART.match(axis)
        name, low, size = (found[1], int(found[2]), int(found[3])) if found else (axis, 1, MOST)
        inside = [p for p, cut in own if cut and cut[1] == name and low <= int(cut[2]) < low * size]
        if not inside:
            _missing(axis, self.mesh)
        yield from inside

    def _span(self, axis: str) -> tuple[str, int, int]:
        """The axis of which this is a part, how many parts are major to it, and its size."""
        found = PART.match(axis)
        if found is None or found[1] not in self.mesh:
            return _missing(axis, self.mesh)
        return found[1], int(found[2]), int(found[3])

    def _position(self, axis: str) -> int:
        return list(self.mesh).index(axis) if axis in self.mesh else _missing(axis, self.mesh)


def _between(axis: str, cuts: Sequence[int]) -> Iterator[tuple[str, int]]:
    """The parts of an axis between cuts, major first; the axis itself where nothing cuts it."""
    if len(cuts) <= 2:
        yield axis, cuts[-1]
        return
    for low, high in itertools.pairwise(cuts):
        yield f"{axis}:({low}){high // low}", high // low


def network(mesh: Mesh, machine: Machine) -> Network:
    """The mesh laid over the machine. Raises ``PlanError`` if it has holes or does not fit."""
    numbers = device_numbers(mesh, machine)
    return Network(machine=machine, mesh={axis: size or 1 for axis, size in mesh.sizes.items()}, numbers=numbers)


def _missing(axis: str, mesh: Mapping[str, int]) -> NoReturn:
    raise KeyError(f"the mesh has no axis '{axis}'; it has {', '.join(mesh)}")
