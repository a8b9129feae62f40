"""How long a chip's units take for convolutions: how long their code is hangs on it, and what stays near meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...chip import Chip
from ...compute.images.convolved import Convolved
from ...compute.speed import speed_of
from ...graph import Graph, Op


class Units(NamedTuple):
    """The cycles of a graph's convolutions on a chip, its clock, and whether its cores have a memory in common; how
    many numbers are ``widened`` for one, and the edge of the chip's squares.
    """

    cycles: Callable[[Op], float]
    clock_hz: float
    has_common: bool
    widened: Callable[[Op], int]
    edge: int


def units_of(graph: Graph, chip: Chip, *, in_loop: bool) -> Units | None:
    """Those of a chip that keeps values near; none of others."""
    speed = speed_of(chip)
    if not speed.coefficients.held_near_bytes:
        return None
    given = () if in_loop else graph.arguments
    convolved = Convolved(graph, speed.coefficients, speed.edge, given=given, in_loop=in_loop)
    has_common = speed.coefficients.common_bytes > 0
    return Units(convolved.units_cycles, speed.clock_hz, has_common, convolved.widened, speed.edge)
