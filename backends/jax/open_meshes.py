"""The meshes for steps that name axes themselves, where a plan leaves its mesh open: each mesh is a step of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...dsl.errors import PlanError
from ...dsl.plan import Axis, Mesh, Plan
from ...planner.search.candidates import Meshes, meshes
from ...planner.topology import Machine
from .loading import load_workload
from .trace import trace


def open_meshes(plan: Plan, machine: Machine, axes: Sequence[str]) -> Meshes:
    """The meshes with these axes that the plan's model accepts one of, the most promising first.

    Raises ``PlanError`` where the model accepts none, or the plan's pins forbid all.
    """
    bare = replace(plan, rules=())
    refused: PlanError | None = None
    for mesh in meshes(bare, machine, (), axes).listed:
        try:
            workload = load_workload(replace(plan, mesh=mesh))
        except PlanError as error:
            refused = refused or error
            continue
        return meshes(plan, machine, trace(workload.step, workload.args).tensors, axes)
    raise refused or PlanError([])


def name_of(mesh: Mesh) -> str:
    """A mesh in a few words: ``expert=4 x=2[y:2]``."""
    return " ".join(f"{axis.name}={axis.size}{_over(axis)}" for axis in mesh.axes or ())


def _over(axis: Axis) -> str:
    parts = [part.name if part.size is None else f"{part.name}:{part.size}" for part in axis.over or ()]
    return f"[{'*'.join(parts)}]" if parts else ""
