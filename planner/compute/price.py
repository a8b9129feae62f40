"""Seconds of every kernel of a program on a chip."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import NamedTuple

from ...dsl.records import record
from ..chip import Chip
from ..convolution_layout import PRODUCTS
from ..fusion.nature import SLICE, UPDATE
from ..graph import Graph
from ..image_pieces import looped_images
from ..images import CONVOLUTION, Image
from ..kernels import Kernel, Program
from ..kinds import ALL_GATHER, COLLECTIVE_PERMUTE, KINDS
from ..lookups import GATHER, LOOK_UP, filled
from ..ranked import RANKS
from .batched import GROWING, grown, growth_of
from .calibration import Calibration
from .coefficients import Coefficients
from .compared import COMPARE, compares, given_arrays, packed_apart
from .copies.batch_rows import BatchRows
from .copies.caches import few_rows, through_few_rows
from .copies.cut_across import cut_across
from .copies.cut_lanes import CutLanes
from .copies.cut_rows import CUT, CutRows
from .copies.few_rows import cut_for_products, lying_whole, tile_by_tile
from .copies.joined import Joined
from .copies.patches import Patches
from .copies.ranked import Ranked
from .copies.relaid import Relaid
from .copies.rowwise import Rowwise, window_cycles
from .copies.strided import rows_cycles, strided, turned_stacks
from .copies.turned import WIDE_EDGE, Turned
from .copies.turned_copies import Copies, copies_cycles, crossings
from .copies.updated import Updated, lent
from .cycles import Cycles, cycles_of
from .images.convolved import Convolved
from .loops import Staying, is_hoisted, staying, unchanged
from .residence import Near, Residence, copied_results
from .speed import Speed, speed_of
from .work import ALONE, FREE, PRODUCT, WORD_BYTES, Work, padded_bytes, work_of

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


@record(frozen=True, slots=True, kw_only=True)
class Apart:
    """What is known of a step where some of its kernels are priced apart from the others.

    ``given`` are the values that are its arguments, ``left`` those that are its results, ``stays`` those that vector
    memory holds for good if they fit, as a loop's turns hand them on; ``images`` has shapes of what is
    convolved elsewhere, ``tables`` the values that meet what is scattered into, and ``edge`` what of those is given or
    left, ``lent`` what they are the first to update of its arguments that are not donated, ``filled`` what scatters
    fill, ``packed`` what kernels of their own make bits of. What products read is fetched while others run, but for
    what is ``far``, what is compared they make themselves, but for what is ``bare``, and no gradient lies transposed.
    Kernels of convolutions that lie ``across`` were gathered of pieces that do. Few images that convolutions elsewhere
    make are ``cut`` in parts of so many places, by their shape.
    """

    given: Collection[int] = ()
    left: Collection[int] = ()
    stays: Sequence[Staying] = ()
    images: Mapping[Shape, Image] = field(default_factory=dict)
    tables: Collection[int] = ()
    edge: Collection[int] = ()
    lent: Collection[int] = ()
    filled: Collection[int] = ()
    packed: Collection[int] = ()
    far: Collection[int] = ()
    at_once: Collection[int] = ()
    bare: Collection[int] = ()
    across: Collection[int] = ()
    cut: Mapping[Shape, int] = field(default_factory=dict)


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
    idle = apart is not None
    turned = Turned(graph, speed.edge if apart is None else 0)
    step = apart or Apart(given=graph.arguments, left=graph.results, edge=(*graph.arguments, *graph.results))
    of = speed.coefficients
    held = graph.arguments if speed.products_near else ()  # else what is near is known better (v5p)
    far = {*step.far, *(() if speed.products_near else step.at_once)}
    residence = Residence(of, idle=idle, leaving=copied_out, given=held, near=near, far=far)
    if speed.is_gpu:
        relaid = Relaid(graph) if apart is None else None
        results = frozenset(step.left) - copied_out.keys()
        yield from _plainly(program, speed, residence, results, relaid, times, count, pace, trips)
        return
    kinds = graph.kinds if kinds is None else kinds
    looks_up, given, images = not kinds.isdisjoint(LOOK_UP), step.given, step.images
    tables = None if apart is None else apart.tables
    rowwise = Rowwise(graph, speed.coefficients, tables, step.edge) if looks_up or step.tables else None
    is_step = speed.edge > 1 and (bool(graph.names) or apart is not None)
    convolved = None
    if images or CONVOLUTION in kinds or ("while" in kinds and looped_images(graph)):
        convolved = Convolved(
            graph,
            of,
            speed.edge,
            in_loop=trips > 0,
            given=given,
            known=images,
            across=step.across,
            places=step.cut,
            left=step.left if is_step and apart is None else (),
        )
    borrowed = step.lent if apart is not None or not graph.names else lent(graph)
    updated = Updated(graph, speed.coefficients, borrowed) if borrowed and speed.edge > 1 else None
    results, fixed = frozenset(step.left) - copied_out.keys(), unchanged(graph) if trips else frozenset()
    brought = _brought(program, residence, step.stays, trips, speed.coefficients.byte_cycles)
    has_bodies = any(kernel.bodies for kernel in program.kernels)
    lying = strided(graph, given) if has_bodies else frozenset[int]()
    whole = lying_whole(graph, given, of) if speed.edge > 1 else frozenset[int]()
    patches = (
        Patches(graph, speed.coefficients, apart=apart is not None) if "transpose" in kinds and speed.edge > 1 else None
    )
    growth = growth_of(graph) if speed.edge > 1 and not kinds.isdisjoint(GROWING) else {}
    tiles = CutRows(program, of, given, apart=apart is not None) if is_step and CUT in kinds else None
    few = few_rows(graph, whole) if speed.edge > 1 else {}
    few = {value: times for value, times in few.items() if value not in tiles.wholes} if tiles and few else few
    laid = BatchRows(graph, of) if trips and speed.edge > 1 and UPDATE in kinds else None
    few |= laid.growth if laid else {}
    ranked = Ranked(graph, of, given, step.left) if speed.edge > 1 and not kinds.isdisjoint(RANKS) else None
    joined = Joined(program, speed.coefficients) if speed.edge > 1 and looks_up else None
    across = cut_across(graph, of) if apart is None and has_bodies and speed.edge > 1 else {}
    lanes = (
        CutLanes(program, of, speed.edge)
        if graph.names and speed.edge > 1 and not kinds.isdisjoint((SLICE, CUT))
        else None
    )
    inside = filled(graph, is_wide=speed.edge >= WIDE_EDGE) if speed.edge > 1 and looks_up else frozenset[int]()
    inside = inside.union(step.filled)
    awaited: dict[int, Kernel] = {}
    written_twice = set(step.packed)
    multiplied = (
        given_arrays(graph) - written_twice - set(step.bare) if idle else set[int]()
    )  # a mask is what products leave beside
    for point, kernel in enumerate(program.kernels):
        op = graph.ops[kernel.ops[-1]]
        if kernel.bodies:
            if convolved:
                convolved.looped(op)
            there = (None,) * len(kernel.bodies) if near is None else near.inside(point)
            read, pieces = (turned_stacks(op, found) if op.turns else frozenset[int]() for found in (lying, whole))
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
            turned.copied(kernel)
            if rowwise:
                rowwise.extra_cycles(kernel)
            if convolved:
                convolved.gathered(op)
            if op.kind == ALL_GATHER:
                awaited |= dict.fromkeys(kernel.writes, kernel)
            else:
                _communicate(program, kernel, point, residence, results, speed)
        else:
            for value in awaited.keys() & set(kernel.reads) if awaited else ():
                _communicate(program, awaited.pop(value), point, residence, results, speed)
            sent = turned.sent(kernel)
            copied = (*turned.copied(kernel), *sent)
            more, at_hand = 0.0, False
            if copied:
                around = (*kernel.reads, *kernel.writes)
                copies = Copies.of(copied, (*kernel.writes, *sent), around, graph.values.__getitem__)
                more, at_hand = copies_cycles(copies, speed), crossings(copies.around, speed) == 1
            rows = rowwise.extra_cycles(kernel) if rowwise else 0.0
            more += sum(brought.pop(value, 0.0) for value in kernel.reads) if brought else 0.0
            more += updated.copies_cycles(kernel) if updated else 0.0
            if convolved:
                more += convolved.copies_cycles(kernel, None if near is None else partial(near.is_near, point=point))
            more += convolved.grouped_cycles(kernel) + convolved.parts_cycles(kernel) if convolved else 0.0
            more += rows_cycles(graph, kernel, stacks, speed.edge) if stacks else 0.0
            more += sum(across.get(value, 0.0) for value in kernel.writes) if across else 0.0
            cut = patches.copies_cycles(kernel) if patches else 0.0
            more += cut
            cut_out = cut_for_products(graph, kernel, tiled) if tiled else {}
            more += sum(cycles_of(each, (False,), (True,), speed.edge, of).total for each in cut_out.values())
            known, here = count(graph, kernel), (*copied, *cut_out) if at_hand else tuple(cut_out)
            if lanes:
                cutting, near_parts = lanes.cycles(kernel)
                more, here = more + cutting, (*here, *near_parts)
            work = speed.work(convolved.counted(kernel, known) if convolved else known)
            work = grown(kernel, work, growth) if growth else work
            work = through_few_rows(graph, kernel, work, few) if few else work
            work = tile_by_tile(graph, kernel, work, tiled or whole) if tiled or whole else work
            if lanes:
                work = Work(kind=FREE) if cutting and lanes.only_cuts(kernel) else lanes.through_rows(kernel, work)
            if tiles:
                rows_cut, near_parts = tiles.cycles(kernel)
                more, here = more + rows_cut, (*here, *near_parts)
                work = tiles.through_tiles(kernel, work, near_parts)
            more += laid.extra_cycles(kernel, work) if laid else 0.0
            if inside and kernel.writes and inside.issuperset(kernel.writes):
                work, rows = Work(kind=FREE), 0.0
            if work.kind == PRODUCT:
                twice = packed_apart(graph, kernel)
                multiplied.update({*kernel.writes} - twice)
                written_twice |= twice
            elif op.kind == COMPARE and not multiplied.isdisjoint(kernel.reads) and compares(graph, kernel):
                work = Work(kind=FREE)
            elif op.kind == COMPARE and not written_twice.isdisjoint(kernel.reads) and compares(graph, kernel):
                bits = Work(kind=work.kind, writes=work.writes, spill_bytes=WORD_BYTES * sum(work.writes))
                more += cycles_of(bits, (), (False,), speed.edge, speed.coefficients).total
            rows += joined.copies_cycles(op) if joined and op.kind in LOOK_UP else 0.0
            rows += ranked.copies_cycles(op) if ranked and op.kind in RANKS else 0.0
            more += rows
            windows = 0.0
            if op.kind == GATHER and speed.edge > 1:
                windows = window_cycles(graph, op, of, is_wide=speed.edge >= WIDE_EDGE)
            more += windows
            is_looked_up = (op.kind in LOOK_UP or op.kind in RANKS) and more > 0
            paced = pace if work is known else cycles_of
            besides = 0.0 if is_looked_up else more
            took = _price(graph, kernel, point, work, residence, results, speed, times, besides, here, paced)
            took = _only(took, more, speed) if is_looked_up else took
            took = took._replace(uncounted_s=0.0) if windows else took
            took = took._replace(counted=True) if cut else took
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
