"""What every turn of a loop rounds alike is converted before the loop, in the layout in which that is given it."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from ...fusion.narrow import NARROW, WIDE
from ...kernels import Kernel
from ..step.passing import own_ops
from .wires import LOOPS, Costs, Level, Port, Wiring


def round_before_loops(wiring: Wiring, level: Level) -> None:
    """Adds what converting takes: once for all loops that are given a value in the same layout (what the others are
    given is compared with the first one's). The first that reads it in a loop is told to ask for it.
    """
    given: dict[int, list[tuple[Port, Level, int]]] = defaultdict(list)
    for position, inner in level.inner.items():
        op = level.graph.ops[level.program.kernels[position].ops[-1]]
        for number in inner if op.turns else ():
            body = wiring.levels[number]
            for operand, argument in zip(op.operands, body.graph.arguments, strict=False):
                if body.source[argument].node in wiring.rounded:
                    given[operand].append((body.source[argument], body, argument))
    for operand, (first, *others) in given.items():
        port, *_ = first
        _ask(wiring, first, None, _seconds(wiring, level, operand, port)[:, None])
        for each in others:
            same = np.array([[one == other for other in each[0].layouts] for one in port.layouts])
            _ask(wiring, each, port, np.where(same, 0.0, _seconds(wiring, level, operand, each[0])[None, :]))


def is_converted(level: Level, operand: int, body: Level, argument: int) -> bool:
    """Whether a loop is given narrow what lies wide before it: its body's program is as narrow as it can be."""
    wide, narrow = level.graph.values[operand], body.graph.values[argument]
    return len(wide.shape) > 1 and (wide.dtype, narrow.dtype) == (WIDE, NARROW)


def _seconds(wiring: Wiring, level: Level, operand: int, port: Port) -> Costs:
    known, often = level.graph.values[operand], wiring.handed(level, port.node)
    return often * np.array([wiring.reshards.rounding(known, layout) for layout in port.layouts])


def _ask(wiring: Wiring, given: tuple[Port, Level, int], other: Port | None, seconds: Costs) -> None:
    """Adds seconds by the choices of what is given, and of ``other`` before that, for its reader to ask for."""
    port, body, argument = given
    reader = _first_reader(body, argument)
    if other is None and reader is not None:
        choices = len(wiring.nodes[reader].costs)
        wiring.hand_on(port, Port(reader, ()), np.broadcast_to(seconds, (len(port.layouts), choices)))
    elif other is None:
        wiring.nodes[port.node].costs = wiring.nodes[port.node].costs + seconds[:, 0]
    else:
        wiring.hand_on(other, port, seconds)
        wiring.readers[min(other.node, port.node), max(other.node, port.node)] = LOOPS if reader is None else reader


def _first_reader(body: Level, argument: int) -> int | None:
    """The node of the first operation of a body that reads what it is given, if that is none of a loop's."""
    first = next((number for number, op in enumerate(body.graph.ops) if argument in op.operands), None)
    kernels = ((body.program.kernels[position], node) for position, node in body.kernels.items())
    return next((node for kernel, node in kernels if _computes(body, kernel, first)), None)


def _computes(body: Level, kernel: Kernel, number: int | None) -> bool:
    return number in own_ops(body.graph, kernel)
