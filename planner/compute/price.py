"""Seconds of every kernel of a program on a chip."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..chip import Chip
from ..convolution_layout import PRODUCTS
from ..fusion.nature import SLICE
from ..graph import Graph
from ..images import CONVOLUTION
from ..kernels import Kernel, Program
from ..kinds import ALL_GATHER, COLLECTIVE_PERMUTE, KINDS
from .apart import Apart
from .besides import Besides
from .calibration import Calibration
from .coefficients import Coefficients
from .copies.relaid import Relaid
from .cycles import Cycles, cycles_of
from .loops import Staying, is_hoisted, staying, unchanged
from .residence import Near, Residence, copied_results
from .speed import Speed, speed_of
from .work import ALONE, FREE, PRODUCT, Work, padded_bytes, work_of

Counting = Callable[[Graph, Kernel], Work]
Pacing = Callable[[Work, Sequence[bool], Sequence[bool], int, Coefficients], Cycles]
Shape = tuple[int, ...]

NETWORK_RATIO = 8.0
"""How much slower than memory a network is, roughly: for what may be fetched meanwhile."""


class KernelPrice(NamedTuple):
    """What one run of a kernel takes; ``times`` is how often a step runs it.

    ``cycles`` are of the clock that the compiler counts in, ``bound`` is the unit that it waits for (``matrix``,
    ``vector``, ``memory``), ``flops`` those of its products, ``num_bytes`` what crosses to and from memory. The TPU
    compiler gives no cycles for gathers, scatters, sorts and products of groups of rows: of these ``counted`` is false,
    and their seconds are what their bytes take, or the products; where copies around them are counted, those stand in
    ``uncounted_s``. It takes
    ``shared_s`` less where no other kernel has any of the fast memory.
    """

    kernel: Kernel
    times: int
    cycles: float
    seconds: float
    flops: float
    num_bytes: int
    bound: str
    counted: bool
    uncounted_s: float = 0.0
    shared_s: float = 0.0


def price(program: Program, chip: Chip, calibration: Calibration | None = None) -> tuple[KernelPrice, ...]:
    """The price of every kernel that computes, in the order of ``Program.walk``: loops and collectives are left out."""
    return tuple(price_at(program, speed_of(chip, calibration)))


def price_at(
    program: Program,
    speed: Speed,
    times: int = 1,
    count: Counting = work_of,
    pace: Pacing = cycles_of,
    *,
    trips: int = 0,
    apart: Apart | None = None,
    stacks: frozenset[int] = frozenset(),
    tiled: frozenset[int] = frozenset(),
    kinds: frozenset[str] | None = None,
    near: Near | None = None,
) -> Iterator[KernelPrice]:
    """The same for a chip of this speed. Each body of a loop is priced once, as if it began with nothing at hand
    but what stays there for all turns.

    ``count`` counts the work of a kernel, for who has counted it before, and ``pace`` says what such work takes;
    ``apart`` says that these kernels are not all of a step. ``trips`` is how often a loop turns of which it is the
    body: what is done before it is spread over its turns; ``stacks`` are what it reads a piece each turn of that does
    not lie by pieces, ``tiled`` those that lie as they come. ``kinds`` are those of its operations, for who knows them,
    ``near`` knows what of a whole step, or of a turn, lies in fast memory.
    """
    graph = program.graph
    copied_out = copied_results(graph) if apart is None else dict[int, int]()
    step = apart or Apart(given=graph.arguments, left=graph.results, edge=(*graph.arguments, *graph.results))
    held = graph.arguments if speed.products_near else ()  # else what is near is known better (v5p)
    of, idle = speed.coefficients, apart is not None
    residence = Residence(of, idle=idle, leaving=copied_out, given=held, near=near, far=step.far)
    results = frozenset(step.left) - copied_out.keys()
    if speed.is_gpu:
        relaid = Relaid(graph) if apart is None else None
        yield from _plainly(program, speed, residence, results, relaid, times, count, pace, trips)
        return
    kinds = graph.kinds if kinds is None else kinds
    besides = Besides(
        program, speed, step, apart=apart, trips=trips, stacks=stacks, tiled=tiled, kinds=kinds, near=near
    )
    fixed = unchanged(graph) if trips else frozenset[int]()
    brought = _brought(program, residence, step.stays, trips, of.byte_cycles)
    awaited: dict[int, Kernel] = {}
    for point, kernel in enumerate(program.kernels):
        op = graph.ops[kernel.ops[-1]]
        if kernel.bodies:
            there = (None,) * len(kernel.bodies) if near is None else near.inside(point)
            read, pieces = besides.looped(op)
            for body, placed in zip(kernel.bodies, there, strict=True):
                yield from price_at(
                    body,
                    speed,
                    times * op.trips,
                    count,
                    pace,
                    trips=op.turns,
                    stacks=read,
                    tiled=pieces,
                    near=placed,
                )
        elif op.kind in KINDS:
            besides.sent(op, kernel)
            if op.kind == ALL_GATHER:
                awaited |= dict.fromkeys(kernel.writes, kernel)
            else:
                _communicate(program, kernel, point, residence, results, speed)
        else:
            for value in awaited.keys() & set(kernel.reads) if awaited else ():
                _communicate(program, awaited.pop(value), point, residence, results, speed)
            known = count(graph, kernel)
            bringing = sum(brought.pop(value, 0.0) for value in kernel.reads) if brought else 0.0
            beside = besides.of(kernel, point, known, bringing)
            took = _price(
                graph,
                kernel,
                point,
                beside.work,
                residence,
                results,
                speed,
                times,
                0.0 if beside.looks_up else beside.cycles,
                beside.at_hand,
                pace if beside.work is known else cycles_of,
            )
            took = _only(took, beside.cycles, speed) if beside.looks_up else took
            took = took._replace(uncounted_s=0.0) if beside.is_whole else took
            took = took._replace(counted=True) if beside.is_counted else took
            took = _often(took, _products(graph, kernel)) if CONVOLUTION in kinds else took
            spread = trips if fixed.issuperset(kernel.reads) and is_hoisted(graph, kernel) else 1
            yield took if spread == 1 else _spread(took, spread)


def _plainly(
    program: Program,
    speed: Speed,
    residence: Residence,
    results: frozenset[int],
    relaid: Relaid | None,
    times: int,
    count: Counting,
    pace: Pacing,
    trips: int,
) -> Iterator[KernelPrice]:
    """The same on a GPU: nothing is padded or turned, or copied but what ``relaid`` has."""
    graph, fixed = program.graph, unchanged(program.graph) if trips else frozenset[int]()
    for point, kernel in enumerate(program.kernels):
        op = graph.ops[kernel.ops[-1]]
        if kernel.bodies:
            for body in kernel.bodies:
                yield from price_at(body, speed, times * op.trips, count, pace, trips=op.turns)
        elif op.kind not in KINDS:
            known = count(graph, kernel)
            work = speed.work(replace(known, written_out=None) if known.written_out else known)
            paced = pace if work is known else cycles_of
            more = relaid.copies_cycles(kernel, speed.coefficients) if relaid else 0.0
            took = _price(graph, kernel, point, work, residence, results, speed, times, more, (), paced)
            took = _often(took, _products(graph, kernel))
            spread = trips if fixed.issuperset(kernel.reads) and is_hoisted(graph, kernel) else 1
            yield took if spread == 1 else _spread(took, spread)


def _brought(
    program: Program, residence: Residence, stays: Sequence[Staying], trips: int, byte_cycles: float
) -> dict[int, float]:
    """What of a program stays in vector memory, and the cycles a turn of bringing there what is not made there."""
    graph, found = program.graph, dict[int, float]()
    for values, changes in staying(program) if trips else stays:
        num_bytes = padded_bytes(graph.values[values[0]])
        if residence.stays(values, num_bytes, changes=changes) and trips and values[0] in graph.arguments:
            found[values[0]] = num_bytes * byte_cycles / trips
    return found


def _price(
    graph: Graph,
    kernel: Kernel,
    point: int,
    work: Work,
    residence: Residence,
    results: frozenset[int],
    speed: Speed,
    times: int,
    more_cycles: float,
    at_hand: Sequence[int],
    pace: Pacing,
) -> KernelPrice:
    residence.next_kernel(point)
    if work.kind == FREE:
        residence.renames(kernel.reads, kernel.writes)
    fetched, parts = work.kind == PRODUCT, _parts(graph, kernel)
    sized = zip(kernel.reads, work.reads, strict=False)
    reads = [(value, size, fetched and value not in parts) for value, size in sized]
    residence.begin([(size, value) for value, size, whole in reads if whole])
    writes = zip(kernel.writes, work.writes, strict=False)
    near_reads = [v in at_hand or residence.reads(v, size, whole) for v, size, whole in reads]
    leaves = work.kind != PRODUCT or speed.products_near
    near_writes = [v in at_hand or residence.writes(v, size, v in results or not leaves) for v, size in writes]
    took = pace(work, near_reads, near_writes, speed.edge, speed.coefficients)
    cycles = took.total + more_cycles
    residence.now += cycles
    read, left = residence.alone(
        [(size, whole) for _, size, whole in reads],
        [(size, v not in results and leaves) for v, size in zip(kernel.writes, work.writes, strict=False)],
    )
    read = [one or other for one, other in zip(near_reads, read, strict=True)]
    left = [one or other for one, other in zip(near_writes, left, strict=True)]
    shared = 0.0
    if (read, left) != (near_reads, near_writes):
        shared = max(took.total - pace(work, read, left, speed.edge, speed.coefficients).total, 0.0)
    return KernelPrice(
        kernel=kernel,
        times=times,
        cycles=cycles,
        seconds=cycles / speed.clock_hz,
        flops=work.flops,
        num_bytes=took.far_bytes,
        bound=took.bound,
        counted=work.is_counted and (work.kind not in (ALONE, FREE) or work.passes > 1 or work.written_out is not None),
        shared_s=shared / speed.clock_hz,
    )


def _parts(graph: Graph, kernel: Kernel) -> set[int]:
    """What a kernel only cuts parts out of, which are not fetched ahead, but for loops of permutes, which have all at
    hand: what it reads whole besides is (seen on v4 and v5e).
    """
    ops = [graph.ops[number] for number in kernel.ops]
    slices = [op for op in ops if op.kind == SLICE and "step" not in op.attributes]
    cut = {op.operands[0] for op in slices}
    return cut - {value for op in ops if op not in slices for value in op.operands} if cut else cut


def _products(graph: Graph, kernel: Kernel) -> int:
    """How often a kernel is charged: more than once that of a convolution that the partitioner gets wrong."""
    ops = (graph.ops[number] for number in kernel.ops)
    return max((int(op.attributes.get(PRODUCTS, 1)) for op in ops if op.kind == CONVOLUTION), default=1)


def _often(took: KernelPrice, times: int) -> KernelPrice:
    return took if times == 1 else took._replace(cycles=took.cycles * times, seconds=took.seconds * times)


def _spread(took: KernelPrice, turns: int) -> KernelPrice:
    """What each of so many turns takes of what is done once before them."""
    seconds, shared_s = took.seconds / turns, took.shared_s / turns
    return took._replace(cycles=took.cycles / turns, seconds=seconds, shared_s=shared_s)


def _only(took: KernelPrice, cycles: float, speed: Speed) -> KernelPrice:
    """A lookup or a sort of which only the copies around it are counted."""
    seconds = cycles / speed.clock_hz
    return took._replace(cycles=cycles, seconds=seconds, counted=True, uncounted_s=took.seconds)


def _communicate(
    program: Program, kernel: Kernel, point: int, residence: Residence, results: frozenset[int], speed: Speed
) -> None:
    """What a collective leaves in vector memory, and that memory is idle while the network works."""
    residence.next_kernel(point)
    kind = program.graph.ops[kernel.ops[-1]].kind
    leaves = kind == COLLECTIVE_PERMUTE or speed.gathers_near
    for value in kernel.writes:
        num_bytes = padded_bytes(program.graph.values[value])
        residence.writes(value, num_bytes, value in results or not leaves)
        residence.now += NETWORK_RATIO * num_bytes * speed.coefficients.byte_cycles
