"""Puts the stages together: a step's graph becomes one device's, its kernels, their seconds, its memory, its price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...dsl.plan import Mesh
from ..graph import Graph
from ..network import Network
from ..partition.layout import local_shape
from ..topology import Machine
from .device_program import DeviceProgram
from .figures import AxisPlace, Estimate, TensorLayout
from .held import held
from .limit import memory_limit
from .roofline import bound
from .runs import Runs
from .traffic import tariff
from .work import pricing


def estimate(
    laid_out: DeviceProgram,
    mesh: Mesh,
    machine: Machine,
    *,
    limit_bytes: int | None = None,
    kinds: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
) -> Estimate:
    """What a step is predicted to take, from what one device runs of it.

    ``mesh`` is the plan's, laid over ``machine``; ``limit_bytes`` the plan's own limit; ``kinds`` what each argument is
    for, by its path; ``notes`` what a reader must know besides. Raises ``PlanError`` if the mesh does not fit.
    """
    graph, program = laid_out.step, laid_out.program
    priced = tariff(mesh, machine, graph.mesh)
    runs = Runs(tariff=priced, pricing=pricing(machine)).add(program)
    memory = held(program, machine, kinds or {})
    limit, limit_of = memory_limit(machine, limit_bytes)
    return Estimate(
        topology=str(machine.topology),
        mesh=_sizes(mesh),
        parts=dict(graph.mesh),
        compute_s=runs.compute_s,
        comm_s=sum(collective.total_s for collective in runs.collectives),
        peak_bytes=memory.peak_bytes,
        limit_bytes=limit,
        limit_of=limit_of,
        collectives=tuple(runs.collectives),
        kernels=tuple(runs.kernels),
        memory=memory,
        bound=bound(graph, laid_out.local, machine.chip),
        axes=tuple(_places(_sizes(mesh), priced.network)),
        tensors=tuple(_layouts(graph)),
        notes=tuple(notes),
    )


def _sizes(mesh: Mesh) -> dict[str, int]:
    return {axis: size or 1 for axis, size in mesh.sizes.items()}


def _places(sizes: Mapping[str, int], over: Network) -> Iterator[AxisPlace]:
    """Where each axis of the plan's mesh lies."""
    whole = replace(over, mesh=sizes, numbers=over.numbers.reshape(tuple(sizes.values())))
    for axis, size in sizes.items():
        placed = whole.placement((axis,))
        yield AxisPlace(name=axis, num_devices=size, spans=placed.spans, shared_with=placed.shared_with)


def _layouts(graph: Graph) -> Iterator[TensorLayout]:
    """How the arguments and the results of a step lie over its mesh."""
    for path, value in zip(graph.names, graph.arguments, strict=False):
        yield _layout(graph, path, "argument", value)
    for path, value in zip(graph.result_names, graph.results, strict=False):
        yield _layout(graph, path, "result", value)


def _layout(graph: Graph, path: str, role: str, number: int) -> TensorLayout:
    value = graph.values[number]
    axes = value.sharding or ((),) * len(value.shape)
    held = replace(value, shape=local_shape(value.shape, axes, graph.mesh), sharding=None)
    return TensorLayout(
        path=path, role=role, shape=value.shape, dtype=value.dtype, axes=axes, device_bytes=held.num_bytes
    )
