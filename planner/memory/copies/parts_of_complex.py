"""The real and imaginary parts of complex numbers, which the TPU compiler computes with apart.

What a step is given or leaves lies number by number; parts are taken out of it before and put together after. Seen on
v5e, where parts lie in vector memory if they can.

A Fourier transform is products of the parts by matrices: the one between a dim's two takes the place of nothing that it
reads, and four arrays as large as a part stand side by side, three where numbers are real before or after.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...compute.written_out import FFT, is_real
from ...graph import Graph, Op
from ...kernels import Program
from ..flow.flow import Flow
from ..tensors.tiles import padded_bytes
from .ranked_copies import Beside

COMPLEX = ("c64", "c128")
PARTS, REAL_PARTS = 4, 3


def parts_of_complex(program: Program, flow: Flow, near_bytes: int) -> Iterator[Beside]:
    """The parts beside what they are taken from or become, two of each, and what transforms need; of a chip whose fast
    memory has room for so many bytes.
    """
    graph = program.graph
    if not any(value.dtype in COMPLEX for value in graph.values):
        return
    given, left = frozenset(graph.arguments), frozenset(graph.results)
    for point, kernel in enumerate(program.kernels):
        transforms = [graph.ops[number] for number in kernel.ops if graph.ops[number].kind == FFT]
        if transforms:
            yield from _transformed(graph, transforms[0], point, near_bytes)
            continue
        read = [v for v in kernel.reads if v in given]
        made = [v for v in kernel.writes if v in left]
        for value in dict.fromkeys((*read, *made)):
            held = graph.values[value]
            if held.dtype in COMPLEX and held.num_elements > 1:
                last = max(flow.touches.get(value, (point,))) if value in given else point
                half = -(-padded_bytes(held) // 2)
                yield from (Beside(value, point, half, may_stay=True, last=last),) * 2


def _transformed(graph: Graph, op: Op, point: int, near_bytes: int) -> Iterator[Beside]:
    """What stands side by side in a transform. It is near if all of it fits, else what the product reads, if that and
    as much again do (v5e: of ``c64[1024,4096]`` all four arrays, of 2048 rows two, of 4096 none).
    """
    source, made = (graph.values[value] for value in (op.operands[0], op.results[0]))
    real = is_real(graph, op) or not all(value.dtype in COMPLEX for value in (source, made))
    part = max(padded_bytes(value) // (2 if value.dtype in COMPLEX else 1) for value in (source, made))
    count = REAL_PARTS if real else PARTS
    fits, half_fits = count * part <= near_bytes, 2 * part <= near_bytes
    for number in range(count):
        yield Beside(op.operands[0], point, part, may_stay=fits or (half_fits and number < count - 2))
