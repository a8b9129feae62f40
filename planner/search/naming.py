"""The mesh as a person reads it: axes that are always used together made one, and named by what they are for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np

from ...dsl.plan import Axis, Mesh, OverDim
from ...dsl.tensors import Tensor
from ..device_order import device_numbers, mesh_problems
from ..graph import Sharding
from ..topology import Machine

DATA, MODEL, UNUSED = "data", "model", "x"


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """A mesh and the layouts over it, by path."""

    mesh: Mesh
    layouts: Mapping[str, Sharding] = field(repr=False)


def readable(laid: Laid, machine: Machine, tensors: Sequence[Tensor], kept: Collection[str]) -> Laid:
    """The same layouts of the same devices over fewer axes with plain names; axes in ``kept`` stay as they are."""
    joined = _joined(laid, machine, kept)
    while joined is not None:
        laid, joined = joined, _joined(joined, machine, kept)
    return _named(_plain(laid, machine, kept), tensors, kept)


def _joined(laid: Laid, machine: Machine, kept: Collection[str]) -> Laid | None:
    """The first two axes that are always used together, made one; None where there are none."""
    axes = [axis for axis in laid.mesh.axes or () if axis.name not in kept]
    dims = {dim for sharding in laid.layouts.values() for dim in sharding if dim}
    for major, minor in combinations(axes, 2):
        if any(_together(dim, major.name, minor.name) for dim in dims) and all(
            _together(dim, major.name, minor.name) or not {major.name, minor.name} & set(dim) for dim in dims
        ):
            mesh = _merged(laid.mesh, major, minor, machine)
            if mesh is not None:
                return Laid(mesh=mesh, layouts=_mapped(laid.layouts, {minor.name: None}))
    return None


def _together(dim: Sequence[str], major: str, minor: str) -> bool:
    return major in dim and minor in dim and dim.index(minor) == dim.index(major) + 1


def _merged(mesh: Mesh, major: Axis, minor: Axis, machine: Machine) -> Mesh | None:
    """The mesh with ``minor`` made part of ``major``, each device where it was; None where no plan can say that."""
    axes = list(mesh.axes or ())
    size = (major.size or 1) * (minor.size or 1)
    whole = dict(machine.dims)
    over = _over([*(major.over or ()), *(minor.over or ())], whole) if major.over and minor.over else None
    made = replace(major, size=size, over=over)
    new = Mesh(axes=tuple(made if axis is major else axis for axis in axes if axis is not minor), place=mesh.place)
    if mesh_problems(new, machine):
        return None
    at, of = axes.index(major), axes.index(minor)
    before = np.moveaxis(device_numbers(mesh, machine), of, at + 1)
    return new if np.array_equal(before.ravel(), device_numbers(new, machine).ravel()) else None


def _over(parts: Sequence[OverDim], whole: Mapping[str, int]) -> tuple[OverDim, ...]:
    """Physical dims, parts of the same one that follow each other made one."""
    made: list[OverDim] = []
    for part in parts:
        if made and made[-1].name == part.name:
            size = (made.pop().size or 1) * (part.size or 1)
            part = OverDim(name=part.name, size=None if size == whole[part.name] else size)
        made.append(part)
    return tuple(made)


def _plain(laid: Laid, machine: Machine, kept: Collection[str]) -> Laid:
    """The mesh without the physical dims that its axes lie on, where the default device order is the same."""
    axes = laid.mesh.axes or ()
    bare = tuple(axis if axis.name in kept else replace(axis, over=None) for axis in axes)
    mesh = replace(laid.mesh, axes=bare)
    same = not mesh_problems(mesh, machine) and np.array_equal(
        device_numbers(mesh, machine), device_numbers(laid.mesh, machine)
    )
    return replace(laid, mesh=mesh) if same else laid


def _named(laid: Laid, tensors: Sequence[Tensor], kept: Collection[str]) -> Laid:
    """Axes named by their use: ``data`` splits what the step's last argument holds, ``model`` other tensors."""
    arguments = [tensor for tensor in tensors if tensor.role == "argument"]
    last = arguments[-1].path.split("/")[0] if arguments else ""
    batch = _used(laid, (t.path for t in arguments if t.path.split("/")[0] == last))
    used = _used(laid, laid.layouts)
    taken = set(kept)
    names: dict[str, str] = {}
    for axis in laid.mesh.axes or ():
        if axis.name not in kept:
            stem = DATA if axis.name in batch else MODEL if axis.name in used else UNUSED
            names[axis.name] = next(name for name in _numbered(stem) if name not in taken)
            taken.add(names[axis.name])
    axes = tuple(replace(axis, name=names.get(axis.name, axis.name)) for axis in laid.mesh.axes or ())
    return Laid(mesh=replace(laid.mesh, axes=axes), layouts=_mapped(laid.layouts, names))


def _used(laid: Laid, paths: Iterable[str]) -> set[str]:
    return {axis for path in paths for dim in laid.layouts.get(path, ()) for axis in dim}


def _numbered(stem: str) -> Iterator[str]:
    yield stem
    yield from (f"{stem}{number}" for number in range(2, 100))


def _mapped(layouts: Mapping[str, Sharding], names: Mapping[str, str | None]) -> dict[str, Sharding]:
    """The layouts with axes renamed, or left out where their name is None."""
    known: dict[Sharding, Sharding] = {}
    for sharding in layouts.values():
        if sharding not in known:
            new = ((names.get(axis, axis) for axis in dim) for dim in sharding)
            known[sharding] = tuple(tuple(name for name in dim if name is not None) for dim in new)
    return {path: known[sharding] for path, sharding in layouts.items()}
