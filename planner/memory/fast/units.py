"""How long a chip's units take for convolutions: how long their code is hangs on it, and what stays near meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ...chip import Chip
from ...compute.images.convolved import Convolved
from ...compute.speed import speed_of
from ...graph import Graph, Op


class Units(NamedTuple):
    """The cycles of a graph's convolutions on a chip, its clock, whether it keeps values near, whether its cores have a
    memory in common, how many numbers are ``widened`` for a convolution, and the edge of the chip's squares.
    """

    cycles: Callable[[Op], float]
    clock_hz: float
    is_near: bool
    has_common: bool
    widened: Callable[[Op], int]
    edge: int


def units_of(graph: Graph, chip: Chip, *, in_loop: bool, near: bool = True) -> Units | None:
    """Those of a chip, where asked for only if it keeps values ``near``."""
    speed = speed_of(chip)
    if near and not speed.coefficients.held_near_bytes:
        return None
    given = () if in_loop else graph.arguments
    convolved = Convolved(graph, speed.coefficients, speed.edge, given=given, in_loop=in_loop)
    return Units(
        cycles=convolved.units_cycles,
        clock_hz=speed.clock_hz,
        is_near=speed.coefficients.held_near_bytes > 0,
        has_common=speed.coefficients.common_bytes > 0,
        widened=convolved.widened,
        edge=speed.edge,
    )
