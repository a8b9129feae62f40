"""Puts a device's work and the prices of its collectives together: what a step takes on a machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...dsl.plan import Mesh
from ..network import Network
from ..topology import Machine
from .device_work import DeviceWork
from .figures import AxisPlace, Estimate
from .late import late
from .limit import memory_limit
from .runs import collectives, priced
from .traffic import Tariffs


def estimate(
    work: DeviceWork,
    mesh: Mesh,
    machine: Machine,
    *,
    limit_bytes: int | None = None,
    notes: Sequence[str] = (),
    tariffs: Tariffs | None = None,
) -> Estimate:
    """What a step is predicted to take, from what one device does of it.

    ``mesh`` is the plan's, laid over ``machine``; ``limit_bytes`` the plan's own limit; ``notes`` are what a reader
    must know besides; ``tariffs`` are kept from price to price. Raises ``PlanError`` if the mesh does not fit.
    """
    parts = work.laid_out.step.mesh
    prices = (tariffs or Tariffs()).of(mesh, machine, parts)
    sent = tuple(priced(work.sending, prices))
    limit, limit_of = memory_limit(machine, limit_bytes)
    return Estimate(
        topology=str(machine.topology),
        mesh=_sizes(mesh),
        parts=dict(parts),
        compute_s=work.compute_s,
        uncounted_s=work.uncounted_s,
        compute_source=work.compute_source,
        comm_s=sum(collective.total_s for collective in sent),
        peak_bytes=work.memory.peak_bytes,
        limit_bytes=limit,
        limit_of=limit_of,
        collectives=late(lambda: tuple(collectives(sent, prices, work.gradients))),
        kernels=late(lambda: work.kernels),
        memory=work.memory,
        bound=late(lambda: work.bound),
        axes=late(lambda: tuple(_places(_sizes(mesh), prices.network))),
        tensors=late(lambda: work.tensors),
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
