"""A step as one device runs it: what depends on the layouts and the kind of machine, not on its figures."""

from __future__ import annotations

from dataclasses import dataclass

from ..compute.copies.turned import lying_turned
from ..forms import Forms
from ..fusion import fuse, with_copies, with_packed
from ..graph import Graph
from ..kernels import Program
from ..memory import Scheduled, put_in_order
from ..partition import Found, partition
from ..topology import Machine

WIDE_EDGE = 256
"""The edge of squares from which on products of a batch cut their parts out themselves: v6e's."""

HALF_WORD_BITS, SUBLANES = 16, 8
"""The rows of the tiles in which arguments of half words lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProgram:
    """A step's graph (``step``), the graph of one device that a plan makes of it (``local``), its kernels in order."""

    step: Graph
    local: Graph
    order: Scheduled

    @property
    def program(self) -> Program:
        """The kernels in order."""
        return self.order.program


def device_program(
    graph: Graph,
    machine: Machine,
    found: Found | None = None,
    forms: Forms | None = None,
    *,
    sums_viewed: bool = True,
) -> DeviceProgram:
    """What one device of a machine runs of a step whose values have their layouts; ``found`` and ``sums_viewed`` are
    ``partition``'s, ``forms`` knows kernels.
    """
    local = partition(graph, platform=machine.platform, machine=machine, found=found, sums_viewed=sums_viewed)
    near_bytes, is_gpu = machine.chip.buffer_vmem_bytes, machine.platform == "gpu"
    unit, repeats = machine.chip.matrix_unit, machine.chip.repeats_scores
    cuts_parts = unit is not None and unit.edge >= WIDE_EDGE
    program = fuse(
        local,
        near_bytes=near_bytes,
        cuts_parts=cuts_parts,
        repeats_scores=repeats,
        is_gpu=is_gpu,
        pads=machine.platform == "tpu",
        offloads=machine.chip.offloads_collectives,
        forms=forms,
    )
    if machine.platform == "tpu":
        program = with_copies(program, lying_turned(program.graph, unit.edge if unit else 0))
    if machine.chip.tile is not None and machine.chip.tile.sublanes.get(HALF_WORD_BITS, 0) > SUBLANES:
        program = with_packed(program)
    return DeviceProgram(step=graph, local=local, order=put_in_order(program, machine.chip))
