"""What several kernels compute in passing: once in the step, in one layout, which the others may have to reshard.

Each kernel computes it for itself where all have it alike. A step laid out has each of its operations once, as the
first kernel lays it out; what else reads it otherwise is handed it, brought into another layout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..graph import Graph
from .passing import own_ops
from .wires import Level, Port, Wiring


def hand_on_inside(wiring: Wiring, level: Level) -> None:
    """Adds what handing on such values takes."""
    for value, maker, reader in _handed(wiring, level):
        made, read = wiring.nodes[maker], wiring.nodes[reader]
        source, target = Port(maker, tuple(made.layouts[value])), Port(reader, tuple(read.layouts[value]))
        wiring.edge(source, target, level.graph.values[value], read.times)


def _handed(wiring: Wiring, level: Level) -> Iterator[tuple[int, int, int]]:
    """Each value that a kernel reads of what one before it computes in passing, with the nodes of both."""
    kernels = level.program.kernels
    first: dict[int, int] = {}
    nodes: dict[int, int] = {}
    filled = _filled(level.graph)
    for position, number in level.kernels.items():
        ops = own_ops(level.graph, kernels[position])
        fresh = [at for at in ops if at not in nodes]
        nodes |= dict.fromkeys(fresh, number)
        operands = dict.fromkeys(value for at in fresh for value in level.graph.ops[at].operands)
        inside = (value for value in operands if value not in level.source and value in first and value not in filled)
        yield from ((value, first[value], number) for value in inside if first[value] != number)
        for value in wiring.nodes[number].layouts:
            first.setdefault(value, number)


def _filled(graph: Graph) -> Mapping[int, int]:
    """What is made of nothing that has a layout, by the operations' numbers."""
    found: dict[int, int] = {}
    for number, op in enumerate(graph.ops):
        if all(not graph.values[value].shape or value in found for value in op.operands):
            found |= dict.fromkeys(op.results, number)
    return found
