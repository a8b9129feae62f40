"""Learns the coefficients of a chip from the cycles that its compiler gives small programs."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from ....planner.compute import Calibration
from ....planner.compute.calibration import FitError
from ....planner.compute.fit import Measured, errors, fit
from ....planner.compute.start import first_guess
from ....planner.fusion import fuse
from ....planner.graph import Graph
from ....planner.topology import Machine
from ..devices import topology as named_topology
from ..lowered.body import Body
from ..lowered.propagation import main_function, propagated
from ..lowered.reading import Reading
from ..program.hlo import parse
from ..program.hlo_loops import Runs
from .samples import Sample, samples

HELD_OUT = 4
UNKNOWN_CYCLES = 2**62
"""What the compiler writes for kernels that it cannot estimate: as many cycles as a number can hold."""


def calibrate(topology: str, progress: Callable[[int, int], None] | None = None) -> Calibration:
    """Compiles small programs for one device of a topology, ahead of time, and fits the price of kernels to them.

    Every fourth program is held out of the fit, and the error that is stated is theirs. ``progress`` is told how many
    of how many programs are done. Takes some minutes on two cores. Raises ``PlanError`` (MW40x) where there is no
    compiler for the topology.
    """
    described = named_topology(topology)
    device = described.devices()[0]
    todo = samples()
    found = []
    for number, sample in enumerate(todo):
        measured = measure(sample, device)
        found += [measured] if measured else []
        if progress:
            progress(number + 1, len(todo))
    return _fitted(topology, described.machine, found)


def measure(sample: Sample, device: Any) -> Measured | None:
    """What the compiler counts for a program, and its kernels as the planner has them; None where it counts nothing."""
    placed = SingleDeviceSharding(device)
    arguments = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=placed), sample.arguments)
    lowered = jax.jit(sample.function).lower(*arguments)
    cycles = Runs(program=parse(lowered.compile().as_text() or "")).estimated_cycles
    if not cycles or cycles >= UNKNOWN_CYCLES:
        return None
    return Measured(name=sample.name, program=fuse(graph_of_one(lowered)), cycles=float(cycles))


def graph_of_one(lowered: Any) -> Graph:
    """The graph of a program for one device."""
    module = propagated(lowered)
    with module.context:
        block = main_function(module).regions[0].blocks[0]
        reading = Reading({})
        return Body(reading).read(block, [reading.value(v.type, None) for v in block.arguments]).graph()


def _fitted(topology: str, machine: Machine, found: list[Measured]) -> Calibration:
    seen = [each for number, each in enumerate(found) if number % HELD_OUT]
    unseen = [each for number, each in enumerate(found) if not number % HELD_OUT]
    edge = machine.chip.matrix_unit.edge if machine.chip.matrix_unit else 128
    learned = fit(seen, first_guess(machine.chip), edge)
    median, p95 = errors(unseen, learned, edge)
    return Calibration(
        jax_kind=machine.jax_kind,
        topology=topology,
        compiler=f"libtpu {importlib.metadata.version('libtpu')}",
        programs=len(seen),
        error=FitError(programs=len(unseen), median=median, p95=p95),
        coefficients=learned,
    )
