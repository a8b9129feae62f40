"""Layouts of the plan language as JAX shardings over real devices."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from ...dsl.errors import PlanError, problem
from ...dsl.plan import DeviceAssignment, Plan
from ...dsl.tensors import Layout
from ...planner.device_assignment import axis_assignment
from ...planner.device_order import device_numbers
from ...planner.topology import physical
from .axis_order import Order
from .devices import topology


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMesh:
    """The plan's mesh over devices: ``mesh.devices`` stand in the plan's device order; an abstract mesh has none.

    ``numbers`` are the device numbers in the shape of the plan's mesh. Explicit device assignments may cut an axis of
    the plan into several of ``mesh``'s; ``parts`` has those of each axis, major first. ``order`` is the order of axes
    that a program keeps to inside, once the layouts are known. ``alike`` are the shardings made before by the axes of
    each dim, ``known`` those asked for, with the layouts.
    """

    mesh: Mesh | AbstractMesh
    numbers: np.ndarray[Any, np.dtype[np.int64]]
    parts: Mapping[str, tuple[str, ...]]
    order: Order = ()
    alike: dict[tuple[tuple[str, ...], ...], NamedSharding] = field(default_factory=dict, compare=False, repr=False)
    known: dict[tuple[int, tuple[int, ...], bool], tuple[Layout, NamedSharding | None]] = field(
        default_factory=dict, compare=False, repr=False
    )

    def sharding(self, layout: Layout, shape: Sequence[int], *, padding: bool = True) -> NamedSharding | None:
        """The sharding of a tensor of this shape, or None where propagation decides.

        A dim that its axes do not divide stays split with ``padding``, which JAX has inside a program only; without,
        as for arguments and results, it is left whole.
        """
        key = id(layout), tuple(shape), padding
        found = self.known.get(key)
        if found is None:  # kept with its layout: no other has its ``id`` meanwhile
            found = self.known[key] = layout, self._sharding(layout, shape, padding=padding)
        return found[1]

    def _sharding(self, layout: Layout, shape: Sequence[int], *, padding: bool) -> NamedSharding | None:
        if layout.how in ("infer", "auto"):
            return None
        if layout.device_assignment is not None:
            return self._assigned(layout.device_assignment)
        sized = zip(shape, layout.axes, strict=True)
        kept = tuple([tuple(axes) if padding or n % self.count(axes) == 0 else () for n, axes in sized])
        found = self.alike.get(kept)
        if found is None:
            parts = spec([part for axis in axes for part in self.parts[axis]] for axes in kept)
            found = self.alike[kept] = NamedSharding(self.mesh, parts)
        return found

    def is_padded(self, layout: Layout, shape: Sequence[int]) -> bool:
        """Whether some dim of a tensor of this shape is split in parts that need padding."""
        if layout.how != "split":
            return False
        return any(dim_size % self.count(axes) for dim_size, axes in zip(shape, layout.axes, strict=True))

    def count(self, axes: Sequence[str]) -> int:
        """Into how many parts these axes of the plan split a dim."""
        return math.prod(self.mesh.shape[part] for axis in axes for part in self.parts[axis])

    def _assigned(self, assignment: DeviceAssignment) -> NamedSharding:
        """An explicit device assignment as an order of sub-axes over the same devices in the same order."""
        order = axis_assignment(assignment, self.numbers)
        sizes = tuple(self.mesh.shape.values())
        if set(_cuts(order.sizes)) <= set(_cuts(sizes)):
            pieces = [_pieces(self.mesh, low, high) for low, high in _spans(order.sizes)]
            return NamedSharding(self.mesh, spec([p for i in dim for p in pieces[i]] for dim in order.dims))
        names = tuple(f"part{i}" for i in range(len(order.sizes)))
        mesh = _other_mesh(self.mesh, order.sizes, names)
        return NamedSharding(mesh, spec([names[i] for i in dim] for dim in order.dims))


def spec(axes_by_dim: Any) -> PartitionSpec:
    """The partition spec with these axes for each dim, major first; none is left whole."""
    entries = [tuple(axes) for axes in axes_by_dim]
    return PartitionSpec(*(None if not e else e[0] if len(e) == 1 else e for e in entries))


def device_mesh(
    plan: Plan, devices: Sequence[Any] | None = None, assignments: Iterable[DeviceAssignment] = ()
) -> DeviceMesh:
    """The mesh of a complete plan over ``devices``, by default those of the plan's topology.

    ``devices[i]`` is the device with number ``i``; ``assignments`` are the explicit ones that will be asked for.
    Raises ``PlanError`` where the devices' count is not the mesh's.
    """
    chosen = tuple(devices) if devices is not None else default_devices(plan)
    sizes = tuple(axis.size or 1 for axis in plan.mesh.axes or ())
    if math.prod(sizes) != len(chosen):
        said = ", ".join(f"{axis.name}={axis.size}" for axis in plan.mesh.axes or ())
        counts: dict[str, Any] = {"mesh": said, "mesh_devices": math.prod(sizes), "devices": len(chosen)}
        raise PlanError([problem("MW305", plan.mesh.place, **counts)])
    if len(set(chosen)) < len(chosen) or not all(isinstance(device, jax.Device) for device in chosen):
        raise PlanError([problem("MW319", plan.mesh.place, count=len(chosen))])
    array = np.empty(len(chosen), dtype=object)
    array[:] = chosen
    abstract = abstract_mesh(plan, assignments)
    mesh = _mesh(array[abstract.numbers].reshape(abstract.mesh.axis_sizes), abstract.mesh.axis_names)
    return replace(abstract, mesh=mesh, alike={}, known={})


def abstract_mesh(plan: Plan, assignments: Iterable[DeviceAssignment] = ()) -> DeviceMesh:
    """The mesh of a complete plan without devices, for layouts that nothing is compiled or run with."""
    sizes = tuple(axis.size or 1 for axis in plan.mesh.axes or ())
    numbers = device_numbers(plan.mesh, physical(plan.topology) if plan.topology else None)
    orders = [_cuts(axis_assignment(a, numbers).sizes) for a in assignments]
    refined, parts = _refined(plan, sizes, _common_cuts([_cuts(sizes), *orders]))
    names = tuple(name for axis in parts.values() for name in axis)
    return DeviceMesh(mesh=_abstract(refined, names), numbers=numbers, parts=parts)


def _mesh(devices: Any, names: tuple[str, ...]) -> Mesh:
    """Explicitly of automatic axes: propagation is to fill in what the plan leaves out."""
    return Mesh(devices, names, axis_types=(AxisType.Auto,) * len(names))


def _abstract(sizes: Sequence[int], names: tuple[str, ...]) -> AbstractMesh:
    return AbstractMesh(tuple(sizes), names, axis_types=(AxisType.Auto,) * len(names))


def _other_mesh(mesh: Mesh | AbstractMesh, sizes: Sequence[int], names: tuple[str, ...]) -> Mesh | AbstractMesh:
    """Other axes over the same devices in the same order."""
    return _abstract(sizes, names) if isinstance(mesh, AbstractMesh) else _mesh(mesh.devices.reshape(sizes), names)


def _cuts(sizes: Sequence[int]) -> tuple[int, ...]:
    """Where a row-major order of these sizes is cut: the products from the minor end, 1 first, the whole last."""
    return tuple(itertools.accumulate(reversed(sizes), operator.mul, initial=1))


def _spans(sizes: Sequence[int]) -> list[tuple[int, int]]:
    """For each size, major first, the two cuts that it lies between."""
    return list(itertools.pairwise(_cuts(sizes)))[::-1]


def _common_cuts(orders: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The first order's cuts and those of each further one that can be cut out of the same axes."""
    common = orders[0]
    for order in orders[1:]:
        both = sorted({*common, *order})
        if all(high % low == 0 for low, high in itertools.pairwise(both)):
            common = tuple(both)
    return tuple(sorted(set(common)))


def _refined(plan: Plan, sizes: tuple[int, ...], cuts: tuple[int, ...]) -> tuple[list[int], dict[str, tuple[str, ...]]]:
    """The sizes of the plan's axes cut at ``cuts``, and the names of each axis's parts: its own where it is whole."""
    refined: list[int] = []
    parts: dict[str, tuple[str, ...]] = {}
    for axis, (low, high) in zip(plan.mesh.axes or (), _spans(sizes), strict=True):
        inner = [cut for cut in cuts if low <= cut <= high]
        pieces = [b // a for a, b in itertools.pairwise(inner)][::-1] or [1]
        refined += pieces
        parts[axis.name] = tuple(f"{axis.name}.{i}" for i in range(len(pieces))) if len(pieces) > 1 else (axis.name,)
    return refined, parts


def _pieces(mesh: Mesh | AbstractMesh, low: int, high: int) -> list[str]:
    """The names of the mesh's axes between two cuts, major first."""
    spans = _spans(tuple(mesh.shape.values()))
    return [name for name, (a, b) in zip(mesh.shape, spans, strict=True) if low <= a and b <= high and a < b]


def default_devices(plan: Plan) -> tuple[Any, ...]:
    """The devices of the plan's topology in the order of their numbers; the process's own where it names none."""
    if plan.topology is not None:
        return tuple(topology(plan.topology).devices())
    return tuple(jax.devices())
