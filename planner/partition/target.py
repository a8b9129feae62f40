"""What of a machine decides how the compiler communicates."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..links import CORE, OUTER
from ..topology import Machine


@dataclass(frozen=True, slots=True)
class Target:
    """``scatters_whole``: a sum over all devices whose parts are kept apart is one ring's reduce-scatter.

    The TPU compiler fuses a sum with the slice of it that a device keeps where it runs over one ring: for every group
    smaller than the machine, and for all of a machine of one dim, or of two that differ (or two by two). ``devices`` is
    how many there are.
    """

    devices: int
    is_tpu: bool = True
    scatters_whole: bool = True
    rings_permute: bool = True


def target(platform: str, machine: Machine | None, devices: int) -> Target:
    """The target for a machine, or for its platform alone where it is not known."""
    if machine is None:
        return Target(devices, is_tpu=platform == "tpu")
    sizes = [size for name, size in machine.dims if size > 1 and name not in (CORE, *OUTER)]
    one_ring = len(sizes) < 2 or (len(sizes) == 2 and (sizes[0] != sizes[1] or sizes == [2, 2]))
    return Target(
        devices=math.prod(machine.sizes),
        is_tpu=machine.platform == "tpu",
        scatters_whole=one_ring,
        rings_permute=machine.topology.kind not in ("v2", "v3"),
    )
