"""How long a chip's units take for convolutions: how long their code is hangs on it, and what stays near meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...chip import Chip
from ...compute.images.convolved import Convolved
from ...compute.speed import speed_of
from ...graph import Graph, Op


class Units(NamedTuple):
    """The cycles of a graph's convolutions on a chip, its clock, and whether its cores have a memory in common."""

    cycles: Callable[[Op], float]
    clock_hz: float
    has_common: bool


def units_of(graph: Graph, chip: Chip, *, in_loop: bool) -> Units | None:
    """Those of a chip that keeps values near; none of others."""
    speed = speed_of(chip)
    if not speed.coefficients.held_near_bytes:
        return None
    given = () if in_loop else graph.arguments
    convolved = Convolved(graph, speed.coefficients, speed.edge, given=given, in_loop=in_loop)
    return Units(convolved.units_cycles, speed.clock_hz, speed.coefficients.common_bytes > 0)
