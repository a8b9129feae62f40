"""What waits for updates: gathers, and products in parts, of weights that are rounded in their updates' kernels.

The compiler rounds what is sent for each gather anew. Where the update of a weight needs nothing of what is gathered,
as in a gradient that gathers it again, it makes one kernel of the update and the rounding, which both read the weight
(multi-output fusion of siblings): the gather begins once the weight's own gradient is there (seen on v4, v5e and v6e).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from ...graph import Graph, Value
from ...kernels import Kernel, Program
from ...kinds import ALL_GATHER
from ...partition.passes.narrow import SENT_ROUNDED
from ..flow.flow import Flow
from ..tensors.tiles import padded_bytes
from .combined import Members

MATRIX = 2
"""A weight of more dims that tiles pad is copied as it is rounded, its numbers in another order, in its own kernel."""
WIDE = "f32"


def behind_updates(program: Program, flow: Flow, sums: Members) -> Flow:
    """The flow in which each of them waits for the update; ``sums`` are kernels that are one."""
    updates = _updates(program, flow)
    waiting = [pair for pair in _rounded(program, flow) if pair[1] in updates]
    if not waiting:
        return flow
    needs = _needs(flow)
    for group in sums:
        _join(needs, group)
    operands = list(flow.operands)
    for kernel, argument in reversed(waiting):
        update = updates[argument]
        if kernel != update and not needs[update] >> kernel & 1:
            operands[kernel] = (*operands[kernel], *flow.made[update][:1])
            _join(needs, (kernel,), needs[update] | 1 << update)
    return replace(flow, operands=tuple(operands))


def _updates(program: Program, flow: Flow) -> Mapping[int, int]:
    """The kernel that makes the next value of each donated weight from it."""
    graph = program.graph
    pairs = ((graph.arguments[argument], graph.results[result]) for result, argument in graph.aliases.items())
    made = {argument: flow.maker[result] for argument, result in pairs if result in flow.maker}
    return {
        argument: kernel
        for argument, kernel in made.items()
        if argument in program.kernels[kernel].reads and _lies_alike(graph.values[argument])
    }


def _lies_alike(weight: Value) -> bool:
    return len(weight.shape) == MATRIX or padded_bytes(weight) == weight.num_bytes


def _rounded(program: Program, flow: Flow) -> Iterator[tuple[int, int]]:
    """The gathers, and the products in parts, by their kernels, and the argument that is rounded for each."""
    graph = program.graph
    arguments = {value for value in graph.arguments if graph.values[value].dtype == WIDE}
    sent = {kernel.writes[0]: kernel.reads[0] for kernel in program.kernels if _is_sent(graph, kernel)}
    for position, kernel in enumerate(program.kernels):
        op = graph.ops[kernel.ops[-1]]
        if op.kind == ALL_GATHER and len(kernel.ops) == 1 and sent.get(kernel.reads[0]) in arguments:
            yield position, sent[kernel.reads[0]]
        elif any(body.goes_round for body in op.bodies):
            yield from ((position, value) for value in kernel.reads if value in arguments)


def _is_sent(graph: Graph, kernel: Kernel) -> bool:
    """Whether it does nothing but round what is sent."""
    return len(kernel.ops) == 1 and graph.ops[kernel.ops[0]].attributes is SENT_ROUNDED


def _needs(flow: Flow) -> list[int]:
    """Of each kernel a bit for each other that it needs, directly or not."""
    needs = list[int]()
    for operands in flow.operands:
        mask = 0
        for source in {flow.maker[value] for value in operands}:
            mask |= needs[source] | 1 << source
        needs.append(mask)
    return needs


def _join(needs: list[int], group: Sequence[int], more: int = 0) -> None:
    """Whatever needs one of a group needs all of it, and all that these need, and ``more``."""
    members = sum(1 << kernel for kernel in group)
    needed = members | more
    for kernel in group:
        needed |= needs[kernel]
    for kernel, mask in enumerate(needs):
        if mask & members:
            needs[kernel] = mask | needed
    for kernel in group:
        needs[kernel] |= needed & ~members
