"""The copies for updates whose gradient lies transposed: the results lie where those of arguments did."""

from __future__ import annotations

from ...chip import Chip
from ...compute.copies.turned import Turned
from ...graph import Graph
from ...kernels import Kernel, Program
from ...kinds import IN_ORDER, TURNED_COPY
from ..flow.flow import Flow
from ..tensors.tiles import padded_bytes

Span = tuple[int, int]


def turned_copies(
    program: Program, flow: Flow, chip: Chip | None, *, by_list: bool
) -> tuple[dict[int, int], dict[int, Span]]:
    """The values that are copied, and from when to when the copies live, by numbers below zero.

    What updates alone read, an optimiser's state, is copied for all of them before the first. XLA's list scheduler
    (``by_list``) copies an argument as soon as all else that it may run needs more. What other cores copy (TPU7x) no
    result takes the place of. What is copied in order to lie where an argument did is turned by that copy.
    """
    edge = chip.matrix_unit.edge if chip and chip.matrix_unit else 0
    graph, turned = program.graph, Turned(program.graph, edge)
    found, spans = dict[int, int](), dict[int, Span]()
    needed = _needed_bytes(flow) if by_list else []
    first = len(program.kernels)
    for point, kernel in enumerate(program.kernels):
        copied = turned.copied(kernel)
        taken = [value for value in copied if value in kernel.reads]
        first = min(first, point) if taken else first
        for value in taken:
            own = first if flow.touches.get(value) == (point,) else point
            size = padded_bytes(graph.values[value])
            begun = next((p for p, num_bytes in enumerate(needed[:own]) if num_bytes > size), own)
            found[-1 - value], spans[-1 - value] = value, (begun, point)
        shared = 0 if chip is not None and chip.offloads_collectives else len(taken)
        left = [] if _is_in_order(graph, kernel) else [value for value in copied if value in kernel.writes]
        for value in left[shared:]:
            found[-1 - value], spans[-1 - value] = value, (point, point)
    return found, spans


def _is_in_order(graph: Graph, kernel: Kernel) -> bool:
    op = graph.ops[kernel.ops[-1]]
    return op.kind == TURNED_COPY and IN_ORDER in op.attributes


def _needed_bytes(flow: Flow) -> list[int]:
    """How much more each kernel makes than is needed no more after it."""
    last = {buffer: point for point, buffers in enumerate(flow.reads) for buffer in buffers}
    made = [sum([flow.num_bytes[buffer] for buffer in buffers]) for buffers in flow.writes]
    for buffer, point in last.items():
        made[point] -= flow.num_bytes[buffer] if buffer not in flow.held else 0
    return made
