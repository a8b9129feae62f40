"""Which products the compiler brings on from a layout in between, that others share, into the one they are to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...convolution_layout import convolution_layout
from ...graph import Graph, Op, Sharding
from ...images import CONVOLUTION, is_of_one_place
from ...kernels import Kernel
from ...partition.rules import strategy
from ...partition.strategy import Asked
from ..pricing.reshards import Reshards
from .wires import Level, Port, Wiring


def goes_on(
    graph: Graph,
    op: Op,
    layouts: Mapping[int, Sharding],
    value: int,
    by: Sharding,
    reshards: Reshards,
    shared: tuple[bool, ...] = (),
) -> bool:
    """Whether the compiler brings what a product reads from the layout ``by`` into the one wanted, and that alone;
    ``layouts`` are those that it reads and makes, ``shared`` as in ``Asked``.

    Where the axes in between split another loop of the product, it may bring the other operand instead; and a
    convolution that reads what lies so may be one that it gets wrong.
    """
    reads = tuple(layouts[each] for each in op.operands)
    asked = Asked(
        op=op,
        reads=tuple(graph.values[each] for each in op.operands),
        makes=tuple(graph.values[each] for each in op.results),
        operands=tuple(by if each == value else layout for each, layout in zip(op.operands, reads, strict=True)),
        results=tuple(layouts[each] for each in op.results),
        mesh=reshards.mesh,
        target=reshards.target,
        shared=shared,
    )
    used = [axis for axis, size in asked.mesh.items() if size > 1]
    if op.kind == CONVOLUTION and not convolution_layout(op, *asked.operands, *asked.results).is_safe(used):
        return False
    return strategy(asked).operands == reads


class Stopped(NamedTuple):
    """What reads at a ``port`` does not go on from layouts ``by`` to the one that it reads: (``by``, choices)."""

    port: Port
    by: Sequence[Sharding]
    found: NDArray[np.bool_]


def stops(wiring: Wiring, level: Level, value: int, by: Sequence[Sharding], ports: Sequence[Port]) -> list[Stopped]:
    """The convolutions at two ports that do not go on from some layouts in which a value is left in between.

    Where more than two read a value, but for what updates it, others may share what one does not go on from: then
    nothing is known.
    """
    if CONVOLUTION not in level.graph.kinds or len(ports) != 2 or wiring.strategies.prices.pricing.counted:
        return []
    nodes = {node: level.program.kernels[position] for position, node in level.kernels.items()}
    readers = [n for n, each in nodes.items() if value in each.reads and (value, n) not in wiring.updates]
    if len(readers) != len(ports) or not nodes.keys() >= {port.node for port in ports}:
        return []
    every = (Stopped(port, by, _stops(wiring, level, value, by, port, nodes[port.node])) for port in ports)
    return [each for each in every if each.found.any()]


def forbid(
    wiring: Wiring, stopped: Sequence[Stopped], shared: Port, ways: Sequence[Sharding | None], first: int
) -> None:
    """Forbids who shares a value to go on where it stops: from those choices of it, behind the ``first``, in which it
    is left otherwise than it is made, and brought on ``ways`` by nobody.
    """
    for port, by, found in stopped:
        is_left = [at >= first and way is None for at, way in enumerate(ways)]
        rows = found[[by.index(layout) if left else 0 for layout, left in zip(shared.layouts, is_left, strict=True)]]
        wiring.hand_on(shared, port, np.where(rows & np.array(is_left)[:, None], np.inf, 0.0))


def _stops(
    wiring: Wiring, level: Level, value: int, by: Sequence[Sharding], port: Port, kernel: Kernel
) -> NDArray[np.bool_]:
    """The same of one port. Of windows of one place it hangs on how other products would have the value."""
    graph, found = level.graph, np.zeros((len(by), len(port.layouts)), bool)
    lies, known = wiring.nodes[port.node].layouts, dict[object, bool]()
    convolutions = (graph.ops[number] for number in kernel.ops if graph.ops[number].kind == CONVOLUTION)
    for op in (op for op in convolutions if value in op.operands and not is_of_one_place(graph, op)):
        for choice, want in enumerate(port.layouts):
            layouts = {each: lies[each][choice] for each in (*op.operands, *op.results)}
            for place, layout in enumerate(by):
                key = (op.results, layout, *layouts.values())
                if layout != want and key not in known:
                    known[key] = not goes_on(graph, op, layouts, value, layout, wiring.reshards)
                found[place, choice] |= layout != want and known[key]
    return found
