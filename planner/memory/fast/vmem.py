"""Which temporaries stay in a chip's own fast memory, and so take nothing of the large one.

The TPU compiler's memory space assignment keeps buffers in vector memory (v4: in the memory common to its cores) where
it finds room, those first that save most memory time for the root of their bytes (``near``).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType

import numpy as np

from ...chip import Chip
from ...kernels import Program
from ...kinds import ALL_GATHER, ALL_REDUCE, KINDS, REDUCE_SCATTER
from ...lookups import GATHER, is_looked_up_apart
from ..flow.flow import Flow
from ..tensors.tiles import padded_bytes
from .accessed import CUTS, Use, accessed_bytes, bytes_per_s, took_s, uses
from .ahead import ahead, brought
from .handed_on import handed_on, with_handed_on
from .near import Memory, Stay, Wanted, near_from
from .shelf import Shelf

LONGEST_STAY = 8.0
NONE_COPIED: Mapping[int, int] = MappingProxyType({})
LARGEST_FETCHED = 0.25
PRODUCTS = frozenset({"dot_general", "convolution"})
Elapsed = Callable[[], np.ndarray]
OFFLOADED = frozenset({ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER})


def near_buffers(
    program: Program,
    flow: Flow,
    lives: Mapping[int, tuple[int, int]],
    chip: Chip,
    room_bytes: np.ndarray,
    *,
    scanned: bool = False,
    fetched: Container[int] = (),
    copied: Mapping[int, int] = NONE_COPIED,
    more: Sequence[Wanted] = (),
) -> dict[int, tuple[Stay, ...]]:
    """When the buffers of a program, of those with ``lives`` and arguments, lie in fast memory.

    ``room_bytes``, what is free at each point, is taken from. ``scanned`` if the program is the body of a scan: what
    that is given lies where its caller has it, but for what is ``fetched`` in each turn. Of arguments that are
    ``copied`` it is the copies, of so many bytes each, made where they are first read. ``more`` asks for room beside.
    """
    took = list(took_s(program, chip, scanned=scanned))
    memory = Memory(
        begins_s=np.concatenate([[0.0], np.cumsum([max(pair) for pair in took])]),
        room_bytes=room_bytes,
        bytes_per_s=bytes_per_s(chip),
        longest_s=longest_stay_s(chip),
    )
    first = handed_on(program, flow, lives)
    points = [point for point, kernel in enumerate(program.kernels) if scanned or kernel.bodies]
    used = uses(program, [program.kernels[point] for point in points], chip, scanned=scanned)
    told = {point: _by_buffer(each, flow, first) for point, each in zip(points, used, strict=True)}
    read = _read_bytes(program, flow, first)

    def uses_at(point: int, buffer: int, num_bytes: int) -> Sequence[Use]:
        if point in told:
            return told[point].get(buffer, ())
        return (Use(read.get((point, buffer), num_bytes) / memory.bytes_per_s, *took[point]),)

    given = frozenset(program.graph.arguments) if scanned else frozenset[int]()
    found = _wanted(program, flow, lives, chip, first, uses_at)
    wanted = [
        _of_copy(each, copied[each.number], chip) if each.number in copied else each
        for each in found
        if each.number not in given or each.number in fetched
    ]
    return with_handed_on(_near(program, [*wanted, *more], memory, scanned=scanned), first, lives)


def _near(program: Program, wanted: list[Wanted], memory: Memory, *, scanned: bool) -> dict[int, tuple[Stay, ...]]:
    """When these lie in fast memory; a step, which nothing runs around, finds one argument there."""
    there = None if scanned or not program.graph.names else ahead(program, wanted, memory)
    if there is None:
        return near_from(wanted, memory)
    shelf = Shelf(memory.room_bytes)
    stays = brought(there, memory, shelf)
    if not stays:
        return near_from(wanted, memory, shelf)
    return {there.number: stays, **near_from([each for each in wanted if each is not there], memory, shelf)}


def _of_copy(argument: Wanted, num_bytes: int, chip: Chip) -> Wanted:
    """What may stay of a copy of an argument, which is read in its place."""
    more = num_bytes / argument.num_bytes
    used = [round(more * size) for size in argument.used_bytes]
    made, saved_s = argument.uses[0], more * argument.saved_s
    return replace(
        argument, num_bytes=num_bytes, made=made, left_near=chip.products_into_vmem, saved_s=saved_s, used_bytes=used
    )


def _read_bytes(program: Program, flow: Flow, first: Mapping[int, int]) -> dict[tuple[int, int], int]:
    """The bytes that kernels read of buffers of which they read pieces, by the kernel's point and the buffer. Lookups
    read as much as they make (``HloCostAnalysis::HandleGather``).
    """
    graph, found = program.graph, dict[tuple[int, int], int]()
    for point, kernel in enumerate(program.kernels):
        ops = [graph.ops[number] for number in kernel.ops]
        if len(ops) == 1 and ops[0].kind == GATHER:
            buffer = flow.buffer.get(ops[0].operands[0], ops[0].operands[0])
            found[point, first.get(buffer, buffer)] = padded_bytes(graph.values[ops[0].results[0]])
        cut = {op.operands[0] for op in ops if op.kind in CUTS}.intersection(kernel.reads)
        accessed = accessed_bytes(graph, kernel, cut=True) if cut else {}
        buffers = {value: flow.buffer.get(value, value) for value in kernel.reads if cut}
        held = {value: first.get(buffer, buffer) for value, buffer in buffers.items()}
        for buffer in {held[value] for value in cut}:
            found[point, buffer] = sum(
                accessed[value] for value in dict.fromkeys(kernel.reads) if held[value] == buffer
            )
    return found


def _by_buffer(uses: Mapping[int, Sequence[Use]], flow: Flow, first: Mapping[int, int]) -> Mapping[int, list[Use]]:
    """The uses of values by the buffers that hold these, the first of those that lie in one place."""
    found = dict[int, list[Use]]()
    for value, of_it in uses.items():
        held = flow.buffer.get(value, value)
        found.setdefault(first.get(held, held), []).extend(of_it)
    return found


def _wanted(
    program: Program,
    flow: Flow,
    lives: Mapping[int, tuple[int, int]],
    chip: Chip,
    first: Mapping[int, int],
    uses_at: Callable[[int, int, int], Sequence[Use]],
) -> Iterator[Wanted]:
    """The temporaries and the arguments that may lie in fast memory, what loops hand on in one place as one."""
    sent, elsewhere = offloaded(program, flow, chip), written_to_hbm(program, flow, chip)
    looked_up, taken_far = _looked_up(program, flow, chip), _replaced_far(program, chip)
    reads: dict[int, list[int]] = {}
    for point, buffers in enumerate(flow.reads):
        for buffer in dict.fromkeys(first.get(buffer, buffer) for buffer in buffers):
            reads.setdefault(buffer, []).append(point)
    own = (pair for pair in lives.items() if pair[0] not in sent and pair[0] not in first)
    temporaries = ((buffer, made, reads.get(buffer, [])) for buffer, (made, _) in own)
    arguments = ((value, -1, sorted({*points, *reads.get(value, ())})) for value, points in flow.touches.items())
    for number, begin, readers in (*temporaries, *arguments):
        num_bytes = flow.num_bytes.get(number) or padded_bytes(program.graph.values[number])
        if num_bytes:
            made = looked_up.get(number, begin)
            points = [point for point in readers if point > made] if number in looked_up else readers
            points = [point for point in points if point != taken_far.get(number)]
            makes = [made] if made >= 0 and not _is_one_of_sums(program, flow, made) else []
            yield Wanted(
                number=number,
                num_bytes=num_bytes,
                uses=points,
                made=made,
                left_near=made >= 0 and number not in elsewhere and number not in looked_up,
                saved_s=_saved_s([use for point in (*makes, *points) for use in uses_at(point, number, num_bytes)]),
                used_bytes=[_used_bytes(uses_at(point, number, num_bytes), chip) for point in points],
            )


def _is_one_of_sums(program: Program, flow: Flow, point: int) -> bool:
    """Whether a kernel adds up several values over devices at once. XLA counts no bytes for each of such results, but
    for the tuple of them (``HloCostAnalysis::HandleAllReduce``), so none are saved where one is near.
    """
    op = program.graph.ops[program.kernels[point].ops[-1]]
    return op.kind == ALL_REDUCE and len(flow.writes[point]) > 1


def _used_bytes(those: Sequence[Use], chip: Chip) -> int:
    """The bytes that kernels read of something."""
    return round(sum(use.moved_s for use in those) * bytes_per_s(chip))


def _saved_s(those: Sequence[Use]) -> float:
    """The memory time saved where something is near for these kernels: of those that wait for memory all together,
    else by how little one misses it.
    """
    saved = [u.moved_s * u.times if u.memory_s > u.matrix_s else u.memory_s - u.matrix_s for u in those]
    waiting = [each for each in saved if each > 0]
    return sum(waiting) if waiting else max(saved, default=0.0)


def staying_copies(
    elapsed_s: Elapsed,
    chip: Chip | None,
    spans: Mapping[int, tuple[int, int]],
    num_bytes: Mapping[int, int],
    room_bytes: np.ndarray,
) -> frozenset[int]:
    """The copies, by their numbers, that stay in what is left of fast memory; ``room_bytes`` is taken from.

    ``elapsed_s`` says when each point of the program begins, where that is asked for.
    """
    if chip is None or not chip.buffer_vmem_bytes or not spans:
        return frozenset()
    return residents(spans, num_bytes, elapsed_s(), room_bytes, longest_stay_s(chip))


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

    ``spans`` are first and last point of each, between which nothing uses it; ``elapsed_s`` is the time at which each
    point begins, and the last one ends, ``room_bytes`` what is free at each. ``room_bytes`` is taken from.
    """
    staying = []
    stays = {b: max(0.0, float(elapsed_s[last] - elapsed_s[first + 1])) for b, (first, last) in spans.items()}
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


def _replaced_far(program: Program, chip: Chip) -> dict[int, int]:
    """The donated arguments that a product's update replaces, and at which point, where products write into the large
    memory: they are read there, wherever they were before (seen on v5p).
    """
    graph, found = program.graph, dict[int, int]()
    if chip.products_into_vmem or not graph.aliases:
        return found
    given = {graph.results[place]: graph.arguments[taken] for place, taken in graph.aliases.items()}
    for point, kernel in enumerate(program.kernels):
        replaced = [given[value] for value in kernel.writes if value in given]
        if replaced and PRODUCTS.intersection(graph.ops[op].kind for op in kernel.ops):
            found.update(dict.fromkeys(replaced, point))
    return found


def _looked_up(program: Program, flow: Flow, chip: Chip) -> dict[int, int]:
    """The buffers from which a chip's SparseCores look up rows, and in which they leave them, by the last point at
    which they do: until then these lie in the large memory.
    """
    graph = program.graph
    found = dict[int, int]()
    for point, kernel in enumerate(program.kernels if chip.offloads_gathers else ()):
        op = graph.ops[kernel.ops[-1]]
        if len(kernel.ops) == 1 and op.kind == GATHER and is_looked_up_apart(graph, op):
            found.update(dict.fromkeys((flow.buffer.get(op.operands[0], -1), *flow.writes[point]), point))
    return found


def written_to_hbm(program: Program, flow: Flow, chip: Chip) -> frozenset[int]:
    """The buffers that some chips write into the large memory, whatever room is near: what collectives make, and what
    products, convolutions and operations that are not fused with others do.
    """
    graph = program.graph
    found = set[int]()
    for point, kernel in enumerate(program.kernels):
        kinds = {graph.ops[op].kind for op in kernel.ops}
        gathers = kinds.intersection(KINDS)
        alone = len(kernel.ops) == 1 and not kinds.intersection(KINDS) and not kernel.bodies
        if (gathers and not chip.gathers_into_vmem) or ((alone or kinds & PRODUCTS) and not chip.products_into_vmem):
            found.update(flow.writes[point])
    return frozenset(found)


def longest_stay_s(chip: Chip) -> float:
    """How long a buffer may stay: the compiler's ratio of overlap to the copy of the whole fast memory, of which 8."""
    if not chip.hbm_bytes_per_s or not chip.buffer_vmem_bytes:
        return 0.0
    if chip.longest_stay_us:
        return chip.longest_stay_us * 1e-6
    return LONGEST_STAY * chip.buffer_vmem_bytes / chip.hbm_bytes_per_s


def begins_s(program: Program, chip: Chip | None) -> Elapsed:
    """When each kernel begins if each takes what its matrix FLOPs or its bytes take at the chip's peak, or longer.

    It is worked out once, when it is first asked for.
    """
    return cache(lambda: _begins_s(program, chip))


def _begins_s(program: Program, chip: Chip | None) -> np.ndarray:
    if chip is None:
        return np.zeros(len(program.kernels) + 1)
    return np.concatenate([[0.0], np.cumsum([max(pair) for pair in took_s(program, chip)])])
