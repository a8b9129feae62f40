"""Which temporaries stay in a chip's own fast memory, and so take nothing of the large one.

The TPU compiler's memory space assignment keeps a buffer in vector memory (v4: in the memory common to its cores) for
all its life where it finds room, if that life is short against what filling the whole of that memory would take.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from ..chip import Chip
from ..graph import Graph, Op
from ..kernels import Program
from ..kinds import COLLECTIVE_PERMUTE, KINDS
from .flow import Flow

LONGEST_STAY = 8.0
LARGEST_SENT_BYTES = 32 << 20
NO_PEAK_FLOPS_PER_S = 1e30


def residents(
    spans: Mapping[int, tuple[int, int]],
    num_bytes: Mapping[int, int],
    elapsed_s: np.ndarray,
    room_bytes: np.ndarray,
    longest_s: float,
) -> frozenset[int]:
    """The buffers that stay: small ones first, where each point of their lives has room.

    ``spans`` are first and last point of each, ``elapsed_s`` the time at which each point begins, ``room_bytes`` what
    is free at each. ``room_bytes`` is taken from.
    """
    staying = []
    for buffer in sorted(spans, key=num_bytes.__getitem__):
        first, last = spans[buffer]
        needed = num_bytes[buffer]
        if elapsed_s[last] - elapsed_s[first] > longest_s or needed > room_bytes[first : last + 1].min():
            continue
        room_bytes[first : last + 1] -= needed
        staying.append(buffer)
    return frozenset(staying)


def sent_from_hbm(program: Program, flow: Flow, chip: Chip) -> frozenset[int]:
    """The buffers that collectives read or write in the large memory: those of more than 32 MiB, which hardly ever
    stay, and on some chips all that they write, but for permutes.

    Of 230 large all-reduces and all-gathers for v4, v5e and v6e, one in six had its result in fast memory; of smaller
    ones, more than half.
    """
    graph = program.graph
    found = set[int]()
    for point, kernel in enumerate(program.kernels):
        kinds = {graph.ops[op].kind for op in kernel.ops}.intersection(KINDS)
        if kinds:
            buffers = (*flow.reads[point], *flow.writes[point])
            found.update(b for b in buffers if flow.num_bytes[b] > LARGEST_SENT_BYTES)
            if not chip.gathers_into_vmem and COLLECTIVE_PERMUTE not in kinds:
                found.update(flow.writes[point])
    return frozenset(found)


def longest_stay_s(chip: Chip) -> float:
    """How long a buffer may stay: the compiler's ratio of overlap to the copy of the whole fast memory, of which 8."""
    if not chip.hbm_bytes_per_s or not chip.buffer_vmem_bytes:
        return 0.0
    return LONGEST_STAY * chip.buffer_vmem_bytes / chip.hbm_bytes_per_s


def begins_s(program: Program, chip: Chip) -> np.ndarray:
    """When each kernel begins if each takes what its matrix FLOPs or its bytes take at the chip's peak, or longer."""
    return np.concatenate([[0.0], np.cumsum(_took_s(program, chip))])


def _took_s(program: Program, chip: Chip) -> Sequence[float]:
    bytes_per_s = chip.hbm_bytes_per_s or NO_PEAK_FLOPS_PER_S
    flops_per_s = chip.peak_flops_per_s("bfloat16") or NO_PEAK_FLOPS_PER_S
    graph, took = program.graph, []
    for kernel in program.kernels:
        moved = sum(graph.values[v].num_bytes for v in (*kernel.reads, *kernel.writes))
        flops = sum(matrix_flops(graph, graph.ops[op]) for op in kernel.ops)
        inner = sum(graph.ops[kernel.ops[-1]].trips * sum(_took_s(body, chip)) for body in kernel.bodies)
        took.append(max(moved / bytes_per_s, flops / flops_per_s) if not kernel.bodies else inner)
    return took


def matrix_flops(graph: Graph, op: Op) -> float:
    """Two for each multiply-add of a matrix product or a convolution, none for all else."""
    if op.kind == "dot_general":
        contracted = op.attributes.get("lhs_contracting_dimensions", ())
        depth = math.prod(graph.shape(op.operands[0])[dim] for dim in contracted)
        return float(2 * depth * graph.values[op.results[0]].num_elements)
    if op.kind == "convolution":
        kernel = graph.values[op.operands[1]].num_elements
        features = graph.shape(op.operands[1])[int(op.attributes.get("kernel_output_feature_dimension", -1))]
        return 2.0 * graph.values[op.results[0]].num_elements * kernel / max(1, features)
    return 0.0
