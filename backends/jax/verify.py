"""Verifies a plan: applies it, compiles the step for the plan's topology, and reports what the compiler says.

For a TPU topology that is the TPU compiler itself, with no TPU; for CPUs and GPUs the compiler that is here.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import numpy as np

from ...dsl.errors import PlanError, problem
from ...dsl.given import plan_given
from ...dsl.plan import Plan
from ...dsl.tensors import Tensor
from ...planner.device_order import device_numbers
from ...planner.estimate.figures import Estimate
from ...planner.network import network
from ...planner.topology import Machine, physical
from .apply import Applied, apply
from .compiled import Argument, Compiled, compiled_report, misfit_report
from .devices import short_reason
from .estimate import estimate
from .misfit import read_misfit
from .planned import edge_shardings
from .program.program_text import program_text
from .shardings import DeviceMesh, default_devices
from .workload import PyTree, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What the compiler says of a plan: ``compiled`` has its numbers, ``predicted`` ours, None without a topology."""

    plan: Plan
    where: str
    compiled: Compiled
    predicted: Estimate | None = None

    @property
    def fits(self) -> bool:
        """Whether the program fits the chip and the plan's own limit."""
        return self.compiled.fits

    def __str__(self) -> str:
        from .report import text

        return text(self)

    def as_json(self) -> dict[str, Any]:
        """The verification as plain JSON values; bytes are of one device, times in seconds."""
        from .report import as_json

        return as_json(self)


def verify(
    plan: Plan,
    step: Step,
    args: Sequence[PyTree],
    *,
    devices: Sequence[Any] | None = None,
    donate_argnums: int | Sequence[int] | None = None,
) -> Verification:
    """Compiles ``step`` under the plan for the plan's topology, ahead of time, and reports what the compiler says.

    ``args`` is a tuple of pytrees of ``jax.ShapeDtypeStruct``; ``devices[i]`` is the device with number ``i``, by
    default the topology's. Donation is as ``apply`` has it: a step that does not donate its state holds the old beside
    the new. A program that does not fit is an answer (``fits`` False, with the compiler's numbers).

    Raises ``PlanError`` for a plan that cannot be applied, a compiler that is not here (MW40x), or a program that
    does not compile for another reason (MW405).
    """
    devices = tuple(devices) if devices is not None else default_devices(plan_given(plan))
    applied = apply(plan, step, args, devices, donate_argnums=donate_argnums)
    placed = applied.placed
    machine = physical(plan.topology) if plan.topology else None
    where = str(plan.topology or f"{applied.mesh.size} devices here")
    predicted = _predicted(plan, step, args, donate_argnums) if machine else None
    lowered = applied.lower(*args)
    begin_s = time.perf_counter()
    try:
        compiled = lowered.compile()
    except jax.errors.JaxRuntimeError as error:
        report = _misfit(error, plan, applied, placed, machine, time.perf_counter() - begin_s)
        return Verification(plan=plan, where=where, compiled=report, predicted=predicted)
    compile_s = time.perf_counter() - begin_s
    report = compiled_report(
        compiled,
        program_text(compiled, lowered, machine),
        mesh={axis: size or 1 for axis, size in plan.mesh.sizes.items()},
        slices=_slices(plan, machine),
        machine=machine,
        network=network(plan.mesh, machine) if machine else None,
        limit_bytes=plan.limits.hbm_bytes,
        arguments=_arguments(applied, _leaves(applied.traced.in_tree, compiled.input_shardings[0])),
        compile_s=compile_s,
        strays=_strays(applied, placed, compiled),
    )
    notes = [*applied.notes, *([report.note] if report.note else [])]
    report = replace(report, note=" ".join(notes) or None)
    return Verification(plan=plan, where=where, compiled=report, predicted=predicted)


def _predicted(plan: Plan, step: Step, args: Sequence[PyTree], donate_argnums: Any) -> Estimate | None:
    """The estimate; None for a step that JAX lowers for real devices alone, which the compiler can still judge."""
    try:
        return estimate(plan, step, args, donate_argnums=donate_argnums)
    except PlanError as error:
        if {found.code for found in error.problems} != {"MW413"}:
            raise
        return None


def _misfit(
    error: Exception, plan: Plan, applied: Applied, placed: DeviceMesh, machine: Machine | None, compile_s: float
) -> Compiled:
    """The report on a program that does not fit. Raises ``PlanError`` if that is not what the compiler says."""
    said = read_misfit(str(error))
    if said is None:
        place = plan.topology.place if plan.topology else None
        where = str(plan.topology or "the devices here")
        raise PlanError([problem("MW405", place, topology=where, reason=short_reason(error))]) from error
    return misfit_report(
        required_bytes=said.required_bytes,
        available_bytes=said.available_bytes,
        reason=said.reason,
        machine=machine,
        limit_bytes=plan.limits.hbm_bytes,
        arguments=_arguments(applied, edge_shardings(applied.layouts, placed, applied.traced.arguments)),
        compile_s=compile_s,
    )


def _slices(plan: Plan, machine: Machine | None) -> np.ndarray | None:
    """The positions in the mesh's flat order of each slice's devices, (slices, devices of each); None for one slice."""
    if machine is None or machine.topology.num_slices == 1:
        return None
    count = machine.topology.num_slices
    home = device_numbers(plan.mesh, machine).ravel() // (machine.num_devices // count)
    return np.argsort(home, kind="stable").reshape(count, -1)


def _leaves(structure: Any, shardings: PyTree) -> list[Any]:
    """One sharding a tensor of this structure; None for an argument that the program does not use."""
    return list(structure.flatten_up_to(shardings))


def _arguments(applied: Applied, shardings: Sequence[Any]) -> list[Argument]:
    """The arguments that the program keeps, each with what a device holds of it."""
    returned = {tensor.returns for tensor in applied.traced.results}
    return [
        Argument(
            path=tensor.path,
            num_bytes=_shard_bytes(tensor, sharding),
            returned=tensor.path in returned,
            dtype=tensor.dtype,
        )
        for tensor, sharding in zip(applied.traced.arguments, shardings, strict=True)
        if sharding is not None
    ]


def _shard_bytes(tensor: Tensor, sharding: Any) -> int:
    return int(np.prod(sharding.shard_shape(tensor.shape), dtype=np.int64)) * tensor.itemsize


def _strays(applied: Applied, placed: DeviceMesh, compiled: Any) -> list[str]:
    """Arguments and results that the compiler laid out otherwise than the plan says."""
    traced = applied.traced
    tensors = [*traced.arguments, *traced.results]
    planned = edge_shardings(applied.layouts, placed, tensors)
    made = [
        *_leaves(traced.in_tree, compiled.input_shardings[0]),
        *_leaves(traced.out_tree, compiled.output_shardings),
    ]
    return [
        tensor.path
        for tensor, plan, now in zip(tensors, planned, made, strict=True)
        if plan is not None and now is not None and not now.is_equivalent_to(plan, len(tensor.shape))
    ]
