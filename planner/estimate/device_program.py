"""A step as one device runs it: what depends on the layouts alone, and on no machine's figures."""

from __future__ import annotations

from dataclasses import dataclass

from ..fusion import fuse
from ..graph import Graph
from ..kernels import Program
from ..memory import schedule
from ..partition import partition


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProgram:
    """A step's graph (``step``), the graph of one device that a plan makes of it (``local``), its kernels in order."""

    step: Graph
    local: Graph
    program: Program


def device_program(graph: Graph, *, platform: str) -> DeviceProgram:
    """What one device runs of a step whose values have their layouts; ``platform`` is the machine's (``tpu``)."""
    local = partition(graph, platform=platform)
    return DeviceProgram(step=graph, local=local, program=schedule(fuse(local)))
