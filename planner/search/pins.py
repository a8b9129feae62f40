"""What of a plan is decided already: the layouts that its pins give, and why some mesh cannot have them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...dsl.errors import Problem, raise_errors
from ...dsl.plan import Assignment, Auto, Axis, Mesh, Place, Plan, Remat, Shard
from ...dsl.resolve import resolve
from ...dsl.rule_checks import axes_of
from ...dsl.rule_matches import OPS
from ...dsl.tensors import Tensor
from .. import device_order
from ..graph import Sharding
from .workload import Workload

TAGS = "acts/"

OPEN = frozenset({"MW103"})
"""Problems of a plan that a search does away with: tensors without an assignment."""

OF_ALL_DEVICES = frozenset({"MW113"})
"""Problems that hang on how many devices there are."""

ALL_DEVICES = "all devices"
"""An axis that no plan names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pinned:
    """The layouts that a plan's pins give on its mesh, by path; ``complete`` says that nothing is left open."""

    shardings: Mapping[str, Sharding]
    complete: bool
    problems: tuple[Problem, ...] = ()


def pinned(plan: Plan, tensors: Sequence[Tensor]) -> Pinned:
    """What a plan with a whole mesh pins. Explicit device assignments are pins, but give no layout by axes."""
    wrong = [found for found in device_order.check(plan) if found.severity == "error"]
    resolution = resolve(plan, tensors)
    errors = [found for found in resolution.problems if found.severity == "error"]
    if wrong:
        pins = (found for found in errors if found.code not in OPEN)
        return Pinned(shardings={}, complete=False, problems=(*wrong, *pins))
    shardings: dict[str, Sharding] = {}
    several: set[str] = set()
    for (path, shape), layout in resolution.layouts.items():
        if layout.how == "split" and resolution.rules[path, shape] is not None:
            several |= {path} if shardings.get(path, layout.axes) != layout.axes else set()
            shardings[path] = layout.axes
    open_ends = any(layout.how == "auto" for layout in resolution.layouts.values())
    return Pinned(
        shardings={path: axes for path, axes in shardings.items() if path not in several},
        complete=not open_ends and not errors,
        problems=tuple(found for found in errors if found.code not in OPEN),
    )


def pinned_values(plan: Plan, workload: Workload, remat: Remat | None) -> dict[str, Sharding]:
    """The layouts that a plan's pins give; a pinned tag is a pin of the computed values that it names too, that of what
    a call gives one of what is computed in it.
    """
    found = dict(pinned(plan, workload.tensors_under(remat)).shardings)
    tags = workload.tags_under(remat) if any(path.startswith(TAGS) for path in found) else {}
    for tag, values in tags.items():
        for value in values if tag in found else ():
            found.setdefault(value, found[tag])
    calls = workload.calls_under(remat) if any(path.startswith(OPS) for path in found) else {}
    for path, inside in calls.items():
        if path in found:
            found.setdefault(inside, found[path])
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a pin asks of a mesh: that the axes of a dim divide it."""

    pattern: str
    path: str
    dim: int
    size: int
    axes: tuple[str, ...]
    place: Place | None = None

    def met(self, mesh: Mesh) -> bool:
        """Whether a mesh has it."""
        return self.size % math.prod(mesh.sizes.get(axis) or 1 for axis in self.axes) == 0

    def __str__(self) -> str:
        return f"a dim of {self.path} has size {self.size}, which {' * '.join(self.axes)} has to divide."


def demands_of(plan: Plan, tensors: Sequence[Tensor], mesh: Mesh) -> list[Demand]:
    """What a plan's pins ask of meshes with the axes of ``mesh``.

    Raises ``PlanError`` where a pin is wrong on any mesh: a pattern without a tensor, a rank, an unknown axis.
    """
    given = plan.mesh.sizes
    probe = Mesh(axes=tuple(Axis(name=name, size=given.get(name) or 1) for name in mesh.sizes), place=plan.mesh.place)
    resolution = resolve(replace(plan, mesh=probe, topology=None), tensors)
    wrong = [p for p in resolution.problems if p.code not in OPEN | OF_ALL_DEVICES and p.severity == "error"]
    raise_errors([*wrong, *device_order.check(plan)] if wrong else ())
    found: dict[Demand, None] = {}
    for (path, shape), layout in resolution.layouts.items():
        rule = resolution.rules[path, shape]
        for dim, axes in enumerate(layout.axes):
            if axes and rule is not None and dim not in layout.padded:
                demand = Demand(pattern=rule.pattern, path=path, dim=dim, size=shape[dim], axes=axes, place=rule.place)
                found.setdefault(demand)
    return list(found)


def misassigned(plan: Plan, tensors: Sequence[Tensor], num_devices: int) -> list[Problem]:
    """What is wrong with a plan's explicit device assignments on any mesh of so many devices."""
    if not any(isinstance(rule.assignment, Shard) for rule in plan.rules):
        return []
    probe = Mesh(axes=tuple(Axis(name=name, size=1) for name in plan.mesh.sizes), place=plan.mesh.place)
    probe = replace(probe, axes=(*(probe.axes or ()), Axis(name=ALL_DEVICES, size=num_devices)))
    resolution = resolve(replace(plan, mesh=probe, topology=None), tensors)
    return [found for found in resolution.problems if found.code in OF_ALL_DEVICES]


def joined_axes(demands: Iterable[Demand], tensors: Sequence[Tensor]) -> frozenset[str]:
    """The axes over which pins have something joined in every step: those that split what comes back (where nothing
    does, what is not of the last argument, the batch), and those that split what is computed along another dim than
    its first. What splits the batch alone joins gradients, which other axes may have split before.
    """
    arguments = [tensor.path for tensor in tensors if tensor.role == "argument"]
    last = arguments[-1].split("/")[0] if arguments else ""
    back = {path for tensor in tensors if tensor.returns for path in (tensor.path, tensor.returns)}
    state = back or {path for path in arguments if path.split("/")[0] != last}
    return frozenset(
        axis
        for demand in demands
        if demand.path in state or (demand.path not in arguments and demand.dim > 0)
        for axis in demand.axes
    )


def pins(plan: Plan) -> tuple[str, ...]:
    """What the user decided, by the plan's own keys: ``mesh``, ``mesh.data``, ``remat``, patterns of tensors."""
    axes = plan.mesh.axes or ()
    fixed = [axis.name for axis in axes if axis.size is not None]
    found = ["mesh"] if axes and len(fixed) == len(axes) else [f"mesh.{name}" for name in fixed]
    found += [rule.pattern for rule in plan.rules if not isinstance(rule.assignment, Auto)]
    return (*found, *(["remat"] if plan.remat and plan.remat.policy != "auto" else []))


def named_axes(assignments: Iterable[Assignment]) -> tuple[str, ...]:
    """The axes that assignments name, in the order of their first use."""
    return tuple(dict.fromkeys(axis for assignment in assignments for axis in axes_of(assignment)))
