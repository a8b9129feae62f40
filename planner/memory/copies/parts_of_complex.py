"""The real and imaginary parts of complex numbers, which the TPU compiler computes with apart.

What a step is given or leaves lies number by number; parts are taken out of it before and put together after. Seen on
v5e, where parts lie in vector memory if they can.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...kernels import Program
from ..flow.flow import Flow
from ..tensors.tiles import padded_bytes
from .ranked_copies import Beside

COMPLEX = ("c64", "c128")


def parts_of_complex(program: Program, flow: Flow) -> Iterator[Beside]:
    """The parts beside what they are taken from or become, two of each."""
    graph = program.graph
    if not any(value.dtype in COMPLEX for value in graph.values):
        return
    given, left = frozenset(graph.arguments), frozenset(graph.results)
    for point, kernel in enumerate(program.kernels):
        read = [v for v in kernel.reads if v in given]
        made = [v for v in kernel.writes if v in left]
        for value in dict.fromkeys((*read, *made)):
            held = graph.values[value]
            if held.dtype in COMPLEX and held.num_elements > 1:
                last = max(flow.touches.get(value, (point,))) if value in given else point
                half = -(-padded_bytes(held) // 2)
                yield from (Beside(value, point, half, may_stay=True, last=last),) * 2
