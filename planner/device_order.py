"""Device order: the mesh laid over the topology.

An axis lies over physical dims, major to minor (``over: [y, core]``), or over a part of one (``x:4``). Where axes
share a dim, the one listed first in the mesh takes the major part. Axes that do not say fill what remains, in mesh
order, row-major over the remaining dims in the topology's order; with no ``over`` at all the mesh is row-major over
the device numbers. GShard calls the outcome the device assignment (appendix A.3).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dsl.errors import Problem, listing, problem, raise_errors, suggest
from ..dsl.plan import Axis, Mesh, Plan
from . import topology as machines
from .topology import Machine

MAX_AXES = 24  # a machine of two cores along each would be the largest that a plan lays out


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A factor of one physical dim that one axis lies on. ``size`` None: not settled by what the plan says."""

    dim: str
    size: int | None


Pieces = list[list[Piece]]  # by axis of the mesh; empty where the axis has no `over`


def device_numbers(mesh: Mesh, machine: Machine | None) -> np.ndarray:
    """The device numbers, in an array shaped as the mesh (int64).

    Without a machine the numbers are row-major. Raises ``PlanError`` if the mesh has holes or does not fit.
    """
    axes = mesh.axes or ()
    if machine is None:
        return np.arange(math.prod(axis.size or 1 for axis in axes)).reshape([axis.size or 1 for axis in axes])
    raise_errors(mesh_problems(mesh, machine))
    return _laid(_groups(axes, _settled(axes, machine), machine), machine).reshape([axis.size or 1 for axis in axes])


def check(plan: Plan) -> list[Problem]:
    """Everything wrong with the plan's topology and with its mesh laid over it. A hole in the mesh is no problem."""
    too_many = list(_bound_problems(plan.mesh))
    if plan.topology is None:
        over = [axis for axis in plan.mesh.axes or () if axis.over]
        return [*too_many, *(problem("MW218", axis.place, axis=axis.name) for axis in over)]
    found = machines.problems(plan.topology)
    if found or too_many:
        return [*found, *too_many]
    return mesh_problems(plan.mesh, machines.physical(plan.topology))


def _bound_problems(mesh: Mesh) -> Iterator[Problem]:
    """More axes, or more devices, than any machine has."""
    axes = mesh.axes or ()
    product = math.prod(axis.size or 1 for axis in axes)
    if len(axes) > MAX_AXES:
        yield problem("MW219", mesh.place, count=f"{len(axes)} axes", most=MAX_AXES)
    if product > machines.MAX_DEVICES:
        shown = product if product < 10**18 else "more than 10^18"
        yield problem("MW219", mesh.place, count=f"{shown} devices", most=machines.MAX_DEVICES)


def mesh_problems(mesh: Mesh, machine: Machine) -> list[Problem]:
    """What is wrong with this mesh on this machine, all of it."""
    axes = mesh.axes
    if axes is None:
        return []
    found = [p for axis in axes for p in _dim_problems(axis, machine)]
    if not found:
        pieces = _settled(axes, machine)
        found = [*_size_problems(axes, pieces), *_share_problems(axes, pieces, machine)]
    return [*_product_problems(mesh, machine), *found]


def _dim_problems(axis: Axis, machine: Machine) -> Iterator[Problem]:
    sizes = dict(machine.dims)
    for over in axis.over or ():
        if over.name not in sizes:
            choices = suggest(over.name, sizes)
            has = listing(list(sizes))
            numbers: dict[str, Any] = {"axis": axis.name, "dim": over.name, "topology": str(machine.topology)}
            yield problem("MW212", axis.place, **numbers, dims=has, choices=choices)
        elif over.size is not None and (over.size < 1 or sizes[over.name] % over.size):
            parts = listing([d for d in range(1, sizes[over.name] + 1) if sizes[over.name] % d == 0])
            numbers = {"axis": axis.name, "dim": over.name, "part": over.size, "size": sizes[over.name]}
            yield problem("MW213", axis.place, **numbers, choices=parts)


def _settled(axes: tuple[Axis, ...], machine: Machine) -> Pieces:
    """The pieces that axes with ``over`` take.

    A part that is not said is the axis's size where the axis lies on that dim alone, else all that others leave of it.
    """
    pieces = [_said(axis) for axis in axes]
    for name, size in machine.dims:
        takes = [piece.size for own in pieces for piece in own if piece.dim == name]
        known = math.prod(take for take in takes if take)
        if takes.count(None) == 1 and size % known == 0:
            rest = Piece(dim=name, size=size // known)
            pieces = [[rest if (p.dim, p.size) == (name, None) else p for p in own] for own in pieces]
    return pieces


def _said(axis: Axis) -> list[Piece]:
    over = axis.over or ()
    return [Piece(dim=o.name, size=o.size or (axis.size if len(over) == 1 else None)) for o in over]


def _size_problems(axes: tuple[Axis, ...], pieces: Pieces) -> Iterator[Problem]:
    for axis, own in zip(axes, pieces, strict=True):
        loose = [piece.dim for piece in own if piece.size is None]
        taken = math.prod(piece.size for piece in own if piece.size)
        if loose and axis.size is not None:
            yield problem("MW216", axis.place, axis=axis.name, dims=listing(loose), example=f"'{loose[0]}:2'")
        elif own and not loose and axis.size is not None and taken != axis.size:
            over = " x ".join(f"{piece.dim}:{piece.size}" for piece in own)
            numbers: dict[str, Any] = {"axis": axis.name, "size": axis.size, "over": over, "product": taken}
            yield problem("MW215", axis.place, **numbers, example=f"'{own[0].dim}:{axis.size}'")


def _share_problems(axes: tuple[Axis, ...], pieces: Pieces, machine: Machine) -> Iterator[Problem]:
    for name, size in machine.dims:
        takers = [(a, p.size) for a, own in zip(axes, pieces, strict=True) for p in own if p.dim == name and p.size]
        taken = math.prod(part for _, part in takers)
        if takers and size % taken:
            said = listing([f"{axis.name} {part}" for axis, part in takers])
            yield problem("MW214", takers[-1][0].place, taken=taken, dim=name, takers=said, size=size)
    if all(own and all(p.size for p in own) for own in pieces):
        yield from _unused(axes, pieces, machine)


def _unused(axes: tuple[Axis, ...], pieces: Pieces, machine: Machine) -> Iterator[Problem]:
    left = [f"{name}:{size}" for name, size in _left(pieces, machine).items() if size > 1]
    if left:
        place = axes[0].place if axes else None
        yield problem("MW217", place, left=listing(left), topology=str(machine.topology))


def _left(pieces: Pieces, machine: Machine) -> dict[str, int]:
    """What no axis takes, by dim, in the machine's order."""
    taken = {name: math.prod(p.size or 1 for own in pieces for p in own if p.dim == name) for name, _ in machine.dims}
    return {name: size // taken[name] for name, size in machine.dims}


def _product_problems(mesh: Mesh, machine: Machine) -> Iterator[Problem]:
    known = {name: size for name, size in mesh.sizes.items() if size is not None}
    taken, devices = math.prod(known.values()), machine.num_devices
    numbers: dict[str, Any] = {
        "product": taken,
        "sizes": listing([f"{name} {size}" for name, size in known.items()]),
        "topology": str(machine.topology),
        "devices": devices,
    }
    if len(known) == len(mesh.sizes) and taken != devices:
        yield problem("MW210", mesh.place, **numbers, choices=_fitting(known, devices))
    elif devices % max(1, taken):
        yield problem("MW211", mesh.place, **numbers)


def _fitting(sizes: dict[str, int], devices: int) -> str:
    """Meshes that do fill the devices, each with one axis changed; or one axis alone where no such change does."""
    product = math.prod(sizes.values())
    fitting = []
    for name, size in reversed(sizes.items()):
        others = product // size if size else 0
        if others and devices % others == 0:
            changed = {**sizes, name: devices // others}
            fitting.append("{" + ", ".join(f"{n}: {s}" for n, s in changed.items()) + "}")
    return listing(fitting[:3]) if fitting else "{" + f"{next(iter(sizes), 'x')}: {devices}" + "}"


def _groups(axes: tuple[Axis, ...], pieces: Pieces, machine: Machine) -> list[list[Piece]]:
    """Pieces for runs of axes in mesh order; axes without ``over`` take theirs from what remains.

    Such axes whose sizes do not fall on whole factors of the dims form one run, which is row-major over its pieces.
    """
    remaining = _left(pieces, machine)
    groups: list[list[Piece]] = []
    pending, home = 1, None
    for axis, own in zip(axes, pieces, strict=True):
        groups.append(own)
        if not axis.over:
            home = len(groups) - 1 if home is None else home
            pending *= axis.size or 1
            taken = _take(pending, remaining)
            if taken is not None:
                groups[home], pending, home = taken, 1, None
    return groups


def _take(count: int, remaining: dict[str, int]) -> list[Piece] | None:
    """``count`` devices off the major end of what remains (changed in place); None if they are no whole factors."""
    taken = []
    for name, size in remaining.items():
        part = size if count % size == 0 else count
        if size % part:
            return None
        taken.append(Piece(dim=name, size=part))
        count //= part
    if count > 1:
        return None
    for piece in taken:
        remaining[piece.dim] //= piece.size or 1
    return taken


def _laid(groups: list[list[Piece]], machine: Machine) -> np.ndarray:
    """The device numbers with the dims cut into the pieces and the pieces brought into the groups' order."""
    listed = [piece for own in groups for piece in own]
    cut = [i for name, _ in machine.dims for i, piece in enumerate(listed) if piece.dim == name]
    grid = np.arange(machine.num_devices).reshape([listed[i].size or 1 for i in cut])
    return grid.transpose([cut.index(i) for i in range(len(listed))])
