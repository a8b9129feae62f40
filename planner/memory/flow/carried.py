"""What of a loop's body, or of a branch, lies where its caller has it."""

from __future__ import annotations

from collections.abc import Iterator

from ...kernels import Program
from .flow import Flow
from .places import takes_over, written_into


def homes(body: Program, flow: Flow, loop: bool) -> set[int]:
    """The buffers of a body that are its caller's: all that it returns, but for a carry that is written while still
    read, and what lay in a carry's place before.
    """
    graph = body.graph
    found = {flow.buffer.get(value, -1) for value in graph.results}
    if loop:
        for before, after in zip(graph.arguments, graph.results, strict=False):
            held = flow.buffer.get(after, -1)
            if held in flow.num_bytes and not _written_last(body, flow, before, held):
                found.discard(held)
        for held in [home for home in found if home in flow.num_bytes]:
            found.update(_before(body, flow, held))
    return found


def _before(body: Program, flow: Flow, held: int) -> Iterator[int]:
    """What lay in a carry's place before, as a turn writes it piece by piece: nothing reads that afterwards."""
    last_reads = {buffer: point for point, buffers in enumerate(flow.reads) for buffer in buffers}
    while held in flow.maker:
        point = flow.maker[held]
        pairs = written_into(body.graph, body.kernels[point], flow.buffer)
        held = next((old for new, old in pairs if new == held and last_reads.get(old) == point), -1)
        if held in flow.num_bytes:
            yield held


def _written_last(body: Program, flow: Flow, before: int, held: int) -> bool:
    """Whether nothing reads the carry's old value after, or while, its new one is written."""
    point, reads = flow.maker[held], flow.touches.get(before, ())
    if not reads or reads[-1] < point:
        return True
    return reads[-1] == point and takes_over(body.graph, body.kernels[point], before, held, flow.buffer)
