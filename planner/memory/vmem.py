"""Which temporaries stay in a chip's own fast memory, and so take nothing of the large one.

The TPU compiler's memory space assignment keeps buffers in vector memory (v4: in the memory common to its cores) where
it finds room, those first that save most memory time for the root of their bytes (``near``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..chip import Chip
from ..graph import Graph, Op
from ..images import CONVOLUTION
from ..kernels import Kernel, Program
from ..kinds import ALL_GATHER, ALL_REDUCE, COLLECTIVE_PERMUTE, KINDS, REDUCE_SCATTER
from .flow import Flow
from .near import Memory, Stay, Wanted, near_from
from .tiles import padded_bytes
from .units import units_of

LONGEST_STAY = 8.4
LARGEST_FETCHED = 0.25
PRODUCTS = frozenset({"dot_general", "convolution"})
OFFLOADED = frozenset({ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER})
NO_PEAK_FLOPS_PER_S = 1e30


def near_buffers(
    program: Program, flow: Flow, lives: Mapping[int, tuple[int, int]], chip: Chip, room_bytes: np.ndarray
) -> dict[int, tuple[Stay, ...]]:
    """When the buffers of a program, of those with ``lives`` and arguments, lie in fast memory.

    ``room_bytes``, what is free at each point, is taken from.
    """
    took = list(_took_s(program, chip))
    memory = Memory(
        begins_s=np.concatenate([[0.0], np.cumsum([max(pair) for pair in took])]),
        room_bytes=room_bytes,
        bytes_per_s=chip.hbm_bytes_per_s or NO_PEAK_FLOPS_PER_S,
        longest_s=longest_stay_s(chip),
    )
    return near_from(_wanted(program, flow, lives, chip, took), memory)


def _wanted(
    program: Program, flow: Flow, lives: Mapping[int, tuple[int, int]], chip: Chip, took: Sequence[tuple[float, float]]
) -> Iterator[Wanted]:
    """The temporaries and the arguments that may lie in fast memory."""
    sent, elsewhere = offloaded(program, flow, chip), written_to_hbm(program, flow, chip)
    communicates = [any(program.graph.ops[op].kind in KINDS for op in each.ops) for each in program.kernels]
    reads: dict[int, list[int]] = {}
    for point, buffers in enumerate(flow.reads):
        for buffer in buffers:
            reads.setdefault(buffer, []).append(point)
    temporaries = ((buffer, made, reads.get(buffer, [])) for buffer, (made, _) in lives.items() if buffer not in sent)
    arguments = ((value, -1, points) for value, points in flow.touches.items())
    bytes_per_s = chip.hbm_bytes_per_s or NO_PEAK_FLOPS_PER_S
    for number, made, uses in (*temporaries, *arguments):
        num_bytes = flow.num_bytes.get(number) or padded_bytes(program.graph.values[number])
        if num_bytes:
            makes = [] if made < 0 or communicates[made] else [made]
            yield Wanted(
                number=number,
                num_bytes=num_bytes,
                uses=uses,
                made=made,
                left_near=made >= 0 and number not in elsewhere,
                saved_s=_saved_s([took[point] for point in (*makes, *uses)], num_bytes / bytes_per_s),
            )


def _saved_s(took: Sequence[tuple[float, float]], moved_s: float) -> float:
    """The memory time saved where what takes as long to move is near for these kernels, by their memory's and their
    matrix units' seconds: of those that wait for memory all together, else by how little one misses it.
    """
    saved = [moved_s if memory_s > matrix_s else memory_s - matrix_s for memory_s, matrix_s in took]
    waiting = [each for each in saved if each > 0]
    return sum(waiting) if waiting else max(saved, default=0.0)


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


def offloaded(program: Program, flow: Flow, chip: Chip) -> frozenset[int]:
    """The buffers that collectives read or write which a chip offloads: they lie in the large memory.

    Other chips have them near where they find room, however large: of reduce-scatters the 64 MiB that are added up, on
    v4 and v5e, of an all-gather on v5e 64 MiB.
    """
    found = set[int]()
    for point, kernel in enumerate(program.kernels if chip.offloads_collectives else ()):
        if OFFLOADED.intersection(program.graph.ops[op].kind for op in kernel.ops):
            found.update((*flow.reads[point], *flow.writes[point]))
    return frozenset(found)


def written_to_hbm(program: Program, flow: Flow, chip: Chip) -> frozenset[int]:
    """The buffers that some chips write into the large memory, whatever room is near: what collectives make, but for
    permutes, and what products, convolutions and operations that are not fused with others do.
    """
    graph = program.graph
    found = set[int]()
    for point, kernel in enumerate(program.kernels):
        kinds = {graph.ops[op].kind for op in kernel.ops}
        gathers = kinds.intersection(KINDS) and COLLECTIVE_PERMUTE not in kinds
        alone = len(kernel.ops) == 1 and not kinds.intersection(KINDS) and not kernel.bodies
        if (gathers and not chip.gathers_into_vmem) or ((alone or kinds & PRODUCTS) and not chip.products_into_vmem):
            found.update(flow.writes[point])
    return frozenset(found)


def longest_stay_s(chip: Chip) -> float:
    """How long a buffer may stay: the compiler's ratio of overlap to the copy of the whole fast memory, of which 8."""
    if not chip.hbm_bytes_per_s or not chip.buffer_vmem_bytes:
        return 0.0
    return LONGEST_STAY * chip.buffer_vmem_bytes / chip.hbm_bytes_per_s


def begins_s(program: Program, chip: Chip) -> np.ndarray:
    """When each kernel begins if each takes what its matrix FLOPs or its bytes take at the chip's peak, or longer."""
    return np.concatenate([[0.0], np.cumsum([max(pair) for pair in _took_s(program, chip)])])


def _took_s(program: Program, chip: Chip, *, in_loop: bool = False) -> Iterator[tuple[float, float]]:
    """The seconds of each kernel's bytes, and of its matrix FLOPs at the chip's peak, or of what units convolve.

    Those are not asked of v4, whose images stay longer.
    """
    bytes_per_s = chip.hbm_bytes_per_s or NO_PEAK_FLOPS_PER_S
    flops_per_s = chip.peak_flops_per_s("bfloat16") or NO_PEAK_FLOPS_PER_S
    graph = program.graph
    units = units_of(graph, chip, in_loop=in_loop) if CONVOLUTION in graph.kinds else None
    units = None if units is None or units.has_common else units
    for kernel in program.kernels:
        if kernel.bodies:
            turns = bool(graph.ops[kernel.ops[-1]].turns)
            turn_s = sum(max(pair) for body in kernel.bodies for pair in _took_s(body, chip, in_loop=turns))
            yield graph.ops[kernel.ops[-1]].trips * turn_s, 0.0
            continue
        moved = sum(padded_bytes(graph.values[v]) for v in (*kernel.reads, *kernel.writes))
        ops = [graph.ops[op] for op in kernel.ops]
        convolved_s = sum(units.cycles(op) for op in ops if op.kind == CONVOLUTION) / units.clock_hz if units else 0.0
        yield moved / bytes_per_s, max(sum(matrix_flops(graph, op) for op in ops) / flops_per_s, convolved_s)


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
