"""What memory space assignment takes kernels to go through: bytes and seconds, and how often those of a loop run."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from ...chip import Chip
from ...compute.price import price_at
from ...compute.speed import speed_of
from ...fusion.nature import UPDATE
from ...graph import Graph, Op
from ...images import CONVOLUTION
from ...kernels import Kernel, Program
from ..tensors.taken_in_pieces import more_bytes, rounded_fills
from ..tensors.tiles import padded_bytes
from .units import units_of

WHILE_TURNS = 5
"""How many turns of a loop memory space assignment counts (XLA's ``while_execution_count``), however many there are."""
CUTS = frozenset({"slice", "dynamic_slice"})
NO_PEAK = 1e30


class Use(NamedTuple):
    """A kernel that moves a value: the seconds that the value takes, those of all its bytes and of its matrix FLOPs at
    the chip's peak, and how often it runs.
    """

    moved_s: float
    memory_s: float
    matrix_s: float
    times: int = 1


def took_s(
    program: Program, chip: Chip, *, scanned: bool = False, in_loop: bool = False
) -> Iterator[tuple[float, float]]:
    """The seconds of each kernel's bytes, and of its matrix FLOPs at the chip's peak, or of what units convolve.

    ``scanned`` in a scan's body, ``in_loop`` in one around a convolution.
    """
    matrix_s = _matrix_s(program.graph, chip, in_loop=in_loop)
    fills = cache(lambda: rounded_fills(program.graph))
    for kernel in program.kernels:
        if kernel.bodies:
            op = program.graph.ops[kernel.ops[-1]]
            yield _turns(op) * sum(_turn_s(body, op, chip, fills) for body in kernel.bodies), 0.0
            continue
        moved = sum(accessed_bytes(program.graph, kernel, scanned=scanned, cut=True).values())
        yield moved / bytes_per_s(chip), matrix_s(kernel)


def _turn_s(body: Program, loop: Op, chip: Chip, fills: Callable[[], frozenset[int]]) -> float:
    """The seconds of a turn of a loop, or of another body; ``fills`` says what is rounded of what loops fill.

    Where kernels of convolutions go round a ring some chips count all that the compiler writes there, as it is priced:
    what is multiplied, put together and taken apart takes longer than its bytes (``Chip.whole_image_loops``). Others
    count bytes alone, those of what is made for two devices too, and images whole that pieces are cut out of (the logs
    of nets for v4 and v5e, where units take twice as long).
    """
    scanned = is_scan(loop, body.graph)
    if loop.turns and not scanned and chip.whole_image_loops and CONVOLUTION in body.graph.kinds:
        return sum(price.seconds for price in price_at(body, speed_of(chip), trips=loop.turns))
    took = took_s(body, chip, scanned=scanned, in_loop=bool(loop.turns))
    if loop.turns and not scanned and CONVOLUTION in body.graph.kinds:
        return sum(moved_s for moved_s, _ in took) + sum(more_bytes(loop, fills())) / bytes_per_s(chip)
    return sum(map(max, took))


def uses(
    program: Program, kernels: Sequence[Kernel], chip: Chip, *, scanned: bool, in_loop: bool = False
) -> Iterator[Mapping[int, Sequence[Use]]]:
    """The uses of each value that some kernels of a program read or write, one after the other; where one has bodies,
    those of their kernels.
    """
    graph = program.graph
    matrix_s = _matrix_s(graph, chip, in_loop=in_loop)
    for kernel in kernels:
        if kernel.bodies:
            yield _uses_inside(graph.ops[kernel.ops[-1]], kernel, chip)
            continue
        moved = accessed_bytes(graph, kernel, scanned=scanned)
        all_s, matrix = sum(moved.values()) / bytes_per_s(chip), matrix_s(kernel)
        yield {value: (Use(num_bytes / bytes_per_s(chip), all_s, matrix),) for value, num_bytes in moved.items()}


def _uses_inside(op: Op, kernel: Kernel, chip: Chip) -> Mapping[int, Sequence[Use]]:
    """The uses of what a loop, or another operation with bodies, is given and gives."""
    found = dict[int, list[Use]]()
    for body in kernel.bodies:
        inside = dict[int, list[Use]]()
        for each in uses(body, body.kernels, chip, scanned=is_scan(op, body.graph), in_loop=bool(op.turns)):
            for value, those in each.items():
                inside.setdefault(value, []).extend(use._replace(times=use.times * _turns(op)) for use in those)
        edges = ((op.operands, body.graph.arguments), (op.results, body.graph.results))
        for outer, inner in dict.fromkeys(pair for edge in edges for pair in zip(*edge, strict=False)):
            found.setdefault(outer, []).extend(inside.get(inner, ()))
    return found


def accessed_bytes(graph: Graph, kernel: Kernel, *, scanned: bool = False, cut: bool = False) -> Mapping[int, int]:
    """The bytes, in tiles, that a kernel without bodies goes through of each value that it reads or writes.

    In a scan it is the piece of a stack that it cuts one from or puts one into, elsewhere, where asked for (``cut``),
    the pieces that it cuts (``HloCostAnalysis::FusionParameterReadBytes``); whatever else reads a value reads the whole
    once. What loops around products and images read near counts whole, as its parts are sent meanwhile.
    """
    values = graph.values
    found = {value: padded_bytes(values[value]) for value in (*kernel.reads, *kernel.writes)}
    if not (scanned or cut):
        return found
    ops = [graph.ops[number] for number in kernel.ops]
    moving = [op for op in ops if op.kind in CUTS or (scanned and op.kind == UPDATE)]
    for value in {op.operands[0] for op in moving}.intersection(kernel.reads):
        found[value] = _read_bytes(graph, ops, value)
    for op in moving:
        if op.kind == UPDATE and op.results[0] in kernel.writes:
            found[op.results[0]] = padded_bytes(values[op.operands[1]])
    return found


def is_scan(op: Op, body: Graph) -> bool:
    """Whether a body is that of a loop that the step itself has."""
    return op.kind == "while" and not body.goes_round


def bytes_per_s(chip: Chip) -> float:
    """How fast a chip's large memory is."""
    return chip.hbm_bytes_per_s or NO_PEAK


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


def _turns(op: Op) -> int:
    return WHILE_TURNS if op.kind == "while" else 1


def _matrix_s(graph: Graph, chip: Chip, *, in_loop: bool) -> Callable[[Kernel], float]:
    """The seconds of a kernel's matrix FLOPs, or of what units convolve, which is not asked of v4: its images stay
    longer.
    """
    flops_per_s = chip.peak_flops_per_s("bfloat16") or NO_PEAK
    units = units_of(graph, chip, in_loop=in_loop) if CONVOLUTION in graph.kinds else None
    units = None if units is None or units.has_common else units

    def of(kernel: Kernel) -> float:
        ops = [graph.ops[number] for number in kernel.ops]
        convolved_s = sum(units.cycles(op) for op in ops if op.kind == CONVOLUTION) / units.clock_hz if units else 0.0
        return max(sum(matrix_flops(graph, op) for op in ops) / flops_per_s, convolved_s)

    return of


def _read_bytes(graph: Graph, ops: Sequence[Op], value: int) -> int:
    readers = [op for op in ops if value in op.operands]
    pieces = [op for op in readers if op.operands[0] == value and (op.kind in CUTS or op.kind == UPDATE)]
    cut = sum(padded_bytes(graph.values[op.operands[1] if op.kind == UPDATE else op.results[0]]) for op in pieces)
    return cut + padded_bytes(graph.values[value]) * (len(pieces) < len(readers))
