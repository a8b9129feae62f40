"""Scores and exponentials that never lie in the large memory: what makes and reads them goes over blocks of rows."""

from __future__ import annotations

from collections.abc import Iterator

from ...chip import Chip
from ...fusion.softmax import softmaxes
from ...fusion.uses import read_uses
from ...kernels import Program
from ..flow.flow import Flow

EXPONENTIAL = "exponential"


def in_blocks(program: Program, flow: Flow, chip: Chip | None) -> frozenset[int]:
    """The buffers of what a forward pass's softmax is computed from, for one product alone: the TPU compiler puts the
    kernels from scores to that product into a loop over blocks of their rows, which stay near (v6e, of 128 MiB and more
    in float32; of heads that share keys it does not).
    """
    graph = program.graph
    if chip is None or not chip.pipelines_attention or EXPONENTIAL not in graph.kinds:
        return frozenset()
    uses = read_uses(graph)

    def made() -> Iterator[int]:
        for each in softmaxes(graph, uses):
            if each.is_for_one and not each.is_grouped:
                shift = graph.ops[uses.makers[graph.ops[each.exponentials].operands[0]]]
                yield from (graph.ops[each.source].results[0], shift.operands[0])
                yield graph.ops[each.exponentials].results[0]

    buffers = {flow.buffer.get(value, value) for value in made()}
    return frozenset(b for b in buffers if flow.num_bytes.get(b, 0) > chip.buffer_vmem_bytes)
