"""Meshes laid over machines, for the tests of the network model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from meshwright.dsl.machine import parse_topology, scan_over
from meshwright.dsl.plan import Axis, Mesh
from meshwright.planner.chip import Wraps
from meshwright.planner.network import Network, network
from meshwright.planner.placement import Placement
from meshwright.planner.topology import Machine, physical


def net(topology: str | Machine, **axes: Any) -> Network:
    """``x=4`` or ``x=(4, "y core")``; axes that fill the machine."""
    machine = physical(parse_topology(topology)) if isinstance(topology, str) else topology
    return network(Mesh(axes=tuple(_axis(name, said) for name, said in axes.items())), machine)


def _axis(name: str, said: Any) -> Axis:
    size, over = said if isinstance(said, tuple) else (said, None)
    return Axis(name=name, size=size, over=None if over is None else tuple(map(scan_over, over.split())))


def whole(topology: str) -> Placement:
    """One group of all devices."""
    return net(topology, all=physical(parse_topology(topology)).num_devices).placement(["all"])


def rewired(topology: str, *, wraps: bool) -> Machine:
    """The machine with all of its torus dims joining their ends, or none."""
    machine = physical(parse_topology(topology))
    rule = Wraps(at_least=3) if wraps else Wraps()
    ici = machine.chip.ici.model_copy(update={"wraps": rule})
    return replace(machine, chip=machine.chip.model_copy(update={"ici": ici}))
