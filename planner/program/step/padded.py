"""What of a step only pads read, which might compute it in passing."""

from __future__ import annotations

from typing import NamedTuple

from ...compute.work import vector_operations
from ...fusion.nature import IN_PASSING, stands_alone
from ...fusion.uses import read_uses
from ...graph import Graph, Op
from ...kernels import Kernel, Program
from .seen import Shape


class Padded(NamedTuple):
    """What nothing but pads reads: the ``shape`` that it gets, whether what it is made of ``is_light``, less than half
    its bytes, and how many vector ``operations`` make a number of it.
    """

    shape: Shape
    is_light: bool
    operations: float


def padded(program: Program) -> dict[int, Padded]:
    """The values that nothing but pads to one shape reads and that those might compute in passing: ones at the ends."""
    graph, uses = program.graph, read_uses(program.graph)
    found: dict[int, Padded] = {}
    for kernel in program.kernels:
        ops = [graph.ops[number] for number in kernel.ops]
        if len(kernel.writes) != 1 or kernel.writes[0] in graph.results or any(op.kind not in IN_PASSING for op in ops):
            continue
        readers = [graph.ops[number] for number in uses.next_ops(kernel.writes[0])]
        shapes = {graph.shape(op.results[0]) for op in readers}
        if len(shapes) == 1 and all(_only_ends(op) for op in readers):
            read_bytes = sum(graph.values[value].num_bytes for value in kernel.reads)
            is_light = 2 * read_bytes < graph.values[kernel.writes[0]].num_bytes
            found[kernel.writes[0]] = Padded(shapes.pop(), is_light, _operations(graph, kernel))
    return found


def _operations(graph: Graph, kernel: Kernel) -> float:
    """How many vector operations a kernel takes for each number of what it writes."""
    counted = (vector_operations(graph.ops[number]) for number in kernel.ops)
    total = sum(each * graph.values[value].num_elements for value, each in counted if each)
    return total / max(graph.values[kernel.writes[0]].num_elements, 1)


def _only_ends(op: Op) -> bool:
    """Whether it pads at the ends of dims alone: what it puts before or between numbers moves them between devices."""
    return op.kind == "pad" and not stands_alone(op) and not any(op.attributes["edge_padding_low"])
