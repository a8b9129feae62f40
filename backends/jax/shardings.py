"""Layouts of the plan language as JAX shardings over real devices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from ...dsl.errors import PlanError, problem
from ...dsl.plan import Plan
from ...dsl.tensors import Layout
from ...planner.device_assignment import axis_assignment
from ...planner.device_order import device_numbers
from ...planner.topology import Machine, physical
from .devices import topology


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMesh:
    """The plan's mesh over devices: ``mesh.devices`` stand in the plan's device order.

    ``numbers`` are the device numbers in the same order and shape.
    """

    mesh: Mesh
    numbers: np.ndarray[Any, np.dtype[np.int64]]
    devices: tuple[Any, ...]

    def sharding(self, layout: Layout, shape: Sequence[int], *, padding: bool = True) -> NamedSharding | None:
        """The sharding of a tensor of this shape, or None where propagation decides.

        A dim that its axes do not divide stays split with ``padding``, which JAX has inside a program only; without,
        as for arguments and results, it is left whole.
        """
        if layout.how in ("infer", "auto"):
            return None
        if layout.device_assignment is not None:
            return self._assigned(layout, shape)
        even = [padding or dim_size % self._parts(axes) == 0 for dim_size, axes in zip(shape, layout.axes, strict=True)]
        return NamedSharding(self.mesh, spec(a if ok else () for a, ok in zip(layout.axes, even, strict=True)))

    def is_padded(self, layout: Layout, shape: Sequence[int]) -> bool:
        """Whether some dim of a tensor of this shape is split in parts that need padding."""
        if layout.how != "split":
            return False
        return any(dim_size % self._parts(axes) for dim_size, axes in zip(shape, layout.axes, strict=True))

    def _parts(self, axes: Sequence[str]) -> int:
        return math.prod(self.mesh.shape[a] for a in axes)

    def _assigned(self, layout: Layout, shape: Sequence[int]) -> NamedSharding:
        """An explicit device assignment as an order of sub-axes over the same devices in the same order."""
        refined, by_dim = axis_assignment(layout.device_assignment or (), self.numbers)
        names = tuple(f"part{i}" for i in range(len(refined)))
        mesh = Mesh(self.mesh.devices.reshape(refined), names, axis_types=(AxisType.Auto,) * len(names))
        return NamedSharding(mesh, spec(tuple(names[i] for i in dim) for dim in by_dim))


def spec(axes_by_dim: Any) -> PartitionSpec:
    """The partition spec with these axes for each dim, major first; none is left whole."""
    entries = [tuple(axes) for axes in axes_by_dim]
    return PartitionSpec(*(None if not e else e[0] if len(e) == 1 else e for e in entries))


def device_mesh(plan: Plan, devices: Sequence[Any] | None = None) -> DeviceMesh:
    """The mesh of a complete plan over ``devices``, by default those of the plan's topology.

    ``devices[i]`` is the device with number ``i``. Raises ``PlanError`` where their count is not the mesh's.
    """
    chosen = tuple(devices) if devices is not None else default_devices(plan)
    sizes = [axis.size or 1 for axis in plan.mesh.axes or ()]
    if math.prod(sizes) != len(chosen):
        raise PlanError(
            [
                problem(
                    "MW305",
                    plan.mesh.place,
                    mesh=", ".join(f"{a.name}={a.size}" for a in plan.mesh.axes or ()),
                    mesh_devices=math.prod(sizes),
                    devices=len(chosen),
                )
            ]
        )
    numbers = _numbers(plan, sizes, len(chosen))
    array = np.empty(len(chosen), dtype=object)
    array[:] = chosen
    names = tuple(axis.name for axis in plan.mesh.axes or ())
    mesh = Mesh(array[numbers], names, axis_types=(AxisType.Auto,) * len(names))
    return DeviceMesh(mesh=mesh, numbers=numbers, devices=chosen)


def default_devices(plan: Plan) -> tuple[Any, ...]:
    """The devices of the plan's topology in the order of their numbers; the process's own where it names none."""
    if plan.topology is not None:
        return tuple(topology(plan.topology).devices())
    import jax

    return tuple(jax.devices())


def _numbers(plan: Plan, sizes: Sequence[int], num_devices: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    machine: Machine | None = physical(plan.topology) if plan.topology else None
    if machine is None:
        return np.arange(num_devices).reshape(sizes)
    return device_numbers(plan.mesh, machine)
