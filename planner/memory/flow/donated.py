"""Temporaries that lie where a donated argument did, or a result will: what this is made from, one after the other.

So it is where a table's momentum decays before rows are added to it and devices sum it: each of these may lie where the
one before did, the first where the argument did that nothing else reads any more, and the last is its next value. What
devices sum up that fast memory has room for is left there, and brought to its place afterwards (seen on v5e of 32 and
64 MiB; on v5p and v6e of 64 and 256 MiB, for which these have no room, it is not).
"""

from __future__ import annotations

from collections.abc import Iterator

from ...kernels import Kernel, Program
from ...kinds import ALL_REDUCE
from ...lookups import SCATTER
from .flow import Flow
from .liveness import in_place
from .places import number_by_number, written_into


def in_donated_place(program: Program, flow: Flow, near_bytes: int) -> frozenset[int]:
    """The buffers of a whole step in its order that take no memory beside the donated arguments, on a chip that keeps
    so many bytes near.
    """
    graph = program.graph
    last_reads = {buffer: point for point, buffers in enumerate(flow.reads) for buffer in buffers}
    last_reads |= {argument: points[-1] for argument, points in flow.touches.items() if points}
    found = set[int]()
    for result, argument in graph.aliases.items():
        before = tuple(_before(program, flow, last_reads, flow.buffer.get(graph.results[result], -1), near_bytes))
        if before and _begins_with(program, flow, last_reads, before[-1], graph.arguments[argument]):
            found.update(before)
    return frozenset(found)


def in_results_place(program: Program, flow: Flow) -> frozenset[int]:
    """The buffers of a whole step in its order that lie where results will: what loops turn into a result, as a scan's
    backward pass does zeros into gradients, and updates of slices do, has its place (``HloAliasAnalysis``). What rows
    are scattered into may lie near before.
    """
    last_reads = {buffer: point for point, buffers in enumerate(flow.reads) for buffer in buffers}
    found = set[int]()
    for point in reversed(range(len(program.kernels))):
        kernel = program.kernels[point]
        scatters = any(program.graph.ops[number].kind == SCATTER for number in kernel.ops)
        if scatters or (flow.held.isdisjoint(kernel.writes) and found.isdisjoint(kernel.writes)):
            continue
        pairs = written_into(program.graph, kernel, flow.buffer)
        ending = [(new, old) for new, old in pairs if last_reads.get(old) == point and old in flow.num_bytes]
        found.update(old for new, old in in_place(ending) if new in flow.held or new in found)
    return frozenset(found)


def _before(program: Program, flow: Flow, last_reads: dict[int, int], held: int, near_bytes: int) -> Iterator[int]:
    """What lay in a buffer's place before, the latest first."""
    while held in flow.maker:
        point = flow.maker[held]
        is_sum = program.graph.ops[program.kernels[point].ops[-1]].kind == ALL_REDUCE
        if is_sum and 0 < flow.num_bytes.get(held, 0) <= near_bytes:  # that of tables rewritten row by row is not known
            return
        pairs = _pairs(program, flow, program.kernels[point])
        held = next((old for new, old in pairs if new == held and last_reads.get(old) == point), -1)
        if held in flow.num_bytes:
            yield held


def _pairs(program: Program, flow: Flow, kernel: Kernel) -> Iterator[tuple[int, int]]:
    """What a kernel writes into or makes number by number, new and old."""
    own = {value: value for value in (*kernel.reads, *kernel.writes) if flow.buffer.get(value) == value}
    yield from written_into(program.graph, kernel, flow.buffer)
    yield from number_by_number(program.graph, kernel, own)


def _begins_with(program: Program, flow: Flow, last_reads: dict[int, int], first: int, argument: int) -> bool:
    """Whether a buffer is made number by number of an argument that nothing reads afterwards."""
    point = flow.maker[first]
    kernel = program.kernels[point]
    if last_reads.get(argument) != point or argument not in kernel.reads:
        return False
    return bool(number_by_number(program.graph, kernel, {first: first, argument: argument}))
