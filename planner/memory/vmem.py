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
from ..kernels import Kernel, Program
from ..kinds import ALL_GATHER, ALL_REDUCE, COLLECTIVE_PERMUTE, KINDS, REDUCE_SCATTER
from .flow import Flow
from .tiles import padded_bytes

LONGEST_STAY = 8.0
LARGEST_SENT_BYTES = 32 << 20
LARGEST_FETCHED = 0.25
PRODUCTS = frozenset({"dot_general", "convolution"})
OFFLOADED = frozenset({ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER})
NO_PEAK_FLOPS_PER_S = 1e30


def near_buffers(
    program: Program, flow: Flow, lives: Mapping[int, tuple[int, int]], chip: Chip, room_bytes: np.ndarray
) -> dict[int, int]:
    """The buffers of a program, of those with ``lives``, that lie in fast memory, and from which point on to their end.

    That is their first, or for what is written into the large memory the first that reads it: it is fetched for the
    rest. What kernels read from the large memory goes through the fast one, where it takes room from what stays: what
    does is decided twice, first without. An argument that several kernels read is kept from the first to the last of
    them as buffers are. ``room_bytes``, what is free at each point, is taken from.
    """
    sent, begun = sent_from_hbm(program, flow, chip), _first_reads(flow, written_to_hbm(program, flow, chip))
    near = {b: (begun.get(b, first), last) for b, (first, last) in lives.items() if b not in sent}
    near = {b: span for b, span in near.items() if b not in begun or span[0] < span[1]}
    begins, longest = begins_s(program, chip), longest_stay_s(chip)
    again = {value: (points[0], points[-1]) for value, points in flow.touches.items() if len(points) > 1}
    sizes = {**flow.num_bytes, **{value: padded_bytes(program.graph.values[value]) for value in again}}
    spans = {**again, **near}
    staying = residents(spans, sizes, begins, room_bytes.copy(), longest)
    room_bytes -= np.minimum(room_bytes, _fetched_bytes(program, flow, staying, chip))
    return {b: near[b][0] for b in residents(spans, sizes, begins, room_bytes, longest) if b in near}


def _first_reads(flow: Flow, wanted: frozenset[int]) -> dict[int, int]:
    """The first point that reads each of these buffers."""
    found: dict[int, int] = {}
    for point, buffers in enumerate(flow.reads if wanted else ()):
        for buffer in wanted.intersection(buffers):
            found.setdefault(buffer, point)
    return {buffer: found.get(buffer, len(flow.reads)) for buffer in wanted}


def staying_copies(
    program: Program,
    chip: Chip | None,
    spans: Mapping[int, tuple[int, int]],
    num_bytes: Mapping[int, int],
    room_bytes: np.ndarray,
) -> frozenset[int]:
    """The copies, by their numbers, that stay in what is left of fast memory; ``room_bytes`` is taken from."""
    if chip is None or not chip.buffer_vmem_bytes or not spans:
        return frozenset()
    return residents(spans, num_bytes, begins_s(program, chip), room_bytes, longest_stay_s(chip))


def is_near(graph: Graph, kernel: Kernel, chip: Chip | None) -> bool:
    """Whether all that a kernel reads and writes fits into fast memory together."""
    room_bytes = chip.buffer_vmem_bytes if chip is not None else 0
    return sum(padded_bytes(graph.values[value]) for value in (*kernel.reads, *kernel.writes)) <= room_bytes


def is_fetched(num_bytes: int, chip: Chip | None) -> bool:
    """Whether so much goes through fast memory as it is read: more is no small part of that, and read as it lies."""
    return chip is not None and num_bytes <= LARGEST_FETCHED * chip.buffer_vmem_bytes


def _fetched_bytes(program: Program, flow: Flow, staying: frozenset[int], chip: Chip) -> np.ndarray:
    """What each kernel reads that does not stay and is no large part of the fast memory."""
    values = program.graph.values
    fetched = np.zeros(len(program.kernels), np.int64)
    for point, kernel in enumerate(program.kernels):
        for value in kernel.reads if not kernel.bodies else ():
            buffer = flow.buffer.get(value, value)
            num_bytes = flow.num_bytes.get(buffer) or padded_bytes(values[value])
            fetched[point] += num_bytes if buffer not in staying and is_fetched(num_bytes, chip) else 0
    return fetched


def residents(
    spans: Mapping[int, tuple[int, int]],
    num_bytes: Mapping[int, int],
    elapsed_s: np.ndarray,
    room_bytes: np.ndarray,
    longest_s: float,
) -> frozenset[int]:
    """The buffers that stay: short lives first, then small ones, where each point of their lives has room.

    ``spans`` are first and last point of each, ``elapsed_s`` the time at which each point begins, ``room_bytes`` what
    is free at each. ``room_bytes`` is taken from.
    """
    staying = []
    stays = {buffer: float(elapsed_s[last] - elapsed_s[first]) for buffer, (first, last) in spans.items()}
    for buffer in sorted(spans, key=lambda buffer: (stays[buffer], num_bytes[buffer])):
        first, last = spans[buffer]
        needed = num_bytes[buffer]
        if stays[buffer] > longest_s or needed > room_bytes[first : last + 1].min():
            continue
        room_bytes[first : last + 1] -= needed
        staying.append(buffer)
    return frozenset(staying)


def sent_from_hbm(program: Program, flow: Flow, chip: Chip) -> frozenset[int]:
    """The buffers that collectives read or write in the large memory: those of more than 32 MiB, which hardly ever
    stay, and on chips that offload collectives all of both.

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
            if chip.offloads_collectives and kinds & OFFLOADED:
                found.update(buffers)
    return frozenset(found)


def written_to_hbm(program: Program, flow: Flow, chip: Chip) -> frozenset[int]:
    """The buffers that some chips write into the large memory, whatever room is near: what collectives make, but for
    permutes, and what products and convolutions do.
    """
    graph = program.graph
    found = set[int]()
    for point, kernel in enumerate(program.kernels):
        kinds = {graph.ops[op].kind for op in kernel.ops}
        gathers = kinds.intersection(KINDS) and COLLECTIVE_PERMUTE not in kinds
        if (gathers and not chip.gathers_into_vmem) or (kinds & PRODUCTS and not chip.products_into_vmem):
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
