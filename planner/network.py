"""A mesh laid over a machine, as the network sees it: where each axis lies, and what it shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..dsl.plan import Mesh
from .device_order import device_numbers
from .placement import Placement, place
from .topology import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A machine and a mesh over it. ``numbers`` are the device numbers, in an array shaped as ``mesh``, major first."""

    machine: Machine
    mesh: Mapping[str, int]
    numbers: np.ndarray

    def placement(self, axes: Iterable[str]) -> Placement:
        """Where a collective over these axes of the mesh lies. Raises ``KeyError`` for an axis that there is not."""
        over = tuple(axes)
        placed = place(self.machine, self.groups(over))
        used = {span.dim for span in placed.spans}
        others = [axis for axis in self.mesh if axis not in over]
        shared = [axis for axis in others if used & {span.dim for span in place(self.machine, self._line(axis)).spans}]
        return replace(placed, shared_with=tuple(shared))

    def groups(self, axes: Iterable[str]) -> np.ndarray:
        """The device numbers that a collective over these axes joins, (groups, devices of each)."""
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

    def _position(self, axis: str) -> int:
        return list(self.mesh).index(axis) if axis in self.mesh else _missing(axis, self.mesh)


def network(mesh: Mesh, machine: Machine) -> Network:
    """The mesh laid over the machine. Raises ``PlanError`` if it has holes or does not fit."""
    numbers = device_numbers(mesh, machine)
    return Network(machine=machine, mesh={axis: size or 1 for axis, size in mesh.sizes.items()}, numbers=numbers)


def _missing(axis: str, mesh: Mapping[str, int]) -> int:
    raise KeyError(f"the mesh has no axis '{axis}'; it has {', '.join(mesh)}")
