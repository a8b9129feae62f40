"""A scheduled program as the buffers that take memory of their own: from when to when, and in whose place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ..chip import Chip
from ..fusion.nature import ALLOCATE
from ..graph import Op, Value
from ..kernels import Program
from .copies.copied import Copied, copied_arguments, near_throughout
from .copies.hoisted import NARROW
from .copies.parts_of_complex import parts_of_complex
from .copies.ranked_copies import ranked_copies
from .copies.turned_copies import turned_copies
from .fast.accessed import is_scan
from .fast.handed_on import carried, handed_on, left_outside
from .fast.near import Stay, Wanted, begins
from .fast.pipelined import in_blocks
from .fast.vmem import NONE_COPIED, Elapsed, begins_s, is_fetched, near_buffers, staying_copies
from .flow.carried import homes
from .flow.donated import in_donated_place, in_results_place
from .flow.flow import Flow
from .flow.liveness import in_place, lifetimes
from .narrow_copies import NO_COPIES, NarrowCopies, narrow_copies, wanted_copies
from .order.combined import at_once
from .order.deferred import defers
from .order.gathered import awaited, gathers_beside, under_way, with_tuples
from .order.offloaded import sums_under_way
from .order.schedule import Scheduled
from .tensors.convolved import smallest_batch
from .tensors.indices import INDEX, indices
from .tensors.looked_up import copied_tables, row_bytes, turned_back
from .tensors.tiles import on_tpu, padded_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A program, or the body of a loop or a conditional, its kernels in order.

    ``spans`` are the first and the last point of the temporaries that lie in the large memory, ``num_bytes`` their
    bytes, ``heirs`` which of them take over another's place as that one ends. ``outputs`` are the buffers of a whole
    step's results that have memory of their own. ``copies`` are the values that a buffer holds in bfloat16: one of a
    number below zero is a copy for loops or convolutions, from the first to the last point of its span. ``relaid`` are
    the values of which a buffer of a number below zero holds a copy in another layout, ``incoming`` the sums over
    devices of which it holds what has come from others, ``indices`` hold where parts begin. ``bodies`` are the bodies
    by the point at which they run, ``room_bytes`` what is left of the fast memory at each. ``near`` are the buffers,
    arguments too, that lie in fast memory at their end, by the point from which on they do.
    """

    program: Program
    flow: Flow
    spans: Mapping[int, tuple[int, int]]
    num_bytes: Mapping[int, int]
    heirs: Mapping[int, int]
    room_bytes: np.ndarray = field(repr=False, compare=False)
    outputs: frozenset[int] = frozenset()
    copies: Mapping[int, int] = field(default_factory=dict)
    relaid: Mapping[int, int] = field(default_factory=dict)
    incoming: Mapping[int, int] = field(default_factory=dict)
    indices: frozenset[int] = frozenset()
    bodies: Mapping[int, tuple[Level, ...]] = field(default_factory=dict)
    near: Mapping[int, tuple[Stay, ...]] = field(default_factory=dict)

    def is_near(self, value: int, point: int) -> bool:
        """Whether a value lies in fast memory where a kernel reads or writes it; a single number is in a register."""
        if self.program.graph.values[value].num_elements <= 1:
            return True
        stays = self.near.get(self.flow.buffer.get(value, value), ())
        return any(stay.first <= point <= stay.last for stay in stays)

    def inside(self, point: int) -> tuple[Level, ...]:
        """The buffers of the bodies of the kernel at a point."""
        return self.bodies[point]

    def value(self, buffer: int) -> Value:
        """What lies in a buffer first."""
        values = self.program.graph.values
        if buffer in self.indices:
            return INDEX
        if buffer in self.relaid or buffer in self.incoming:
            return values[self.relaid.get(buffer, self.incoming.get(buffer, 0))]
        return replace(values[self.copies[buffer]], dtype=NARROW) if buffer in self.copies else values[buffer]


class Where(NamedTuple):
    """Where a step runs: the chip, and the sizes of the mesh's axes."""

    chip: Chip | None
    mesh: Mapping[str, int]


def level(step: Scheduled, chip: Chip | None) -> Level:
    """The buffers of a whole step in its order, on a chip."""
    graph = step.program.graph
    donated = {step.flow.buffer.get(graph.results[result], -1) for result in graph.aliases}
    where = Where(chip, graph.mesh)
    is_tpu = on_tpu(chip)
    copied = {} if not is_tpu else copied_arguments(step.program, step.flow, smallest_batch(chip))
    sizes = {value: num_bytes for value, (_, num_bytes) in copied.items()}
    found = NO_COPIES if not is_tpu else narrow_copies(step.program, step.flow, chip, copied)
    more = [] if chip is None else wanted_copies(step.program, found, chip, copied)
    room_bytes = chip.buffer_vmem_bytes if chip else 0
    donated |= in_donated_place(step.program, step.flow, room_bytes) | in_results_place(step.program, step.flow)
    placed = _level(step, where, room_bytes, donated, step.flow.held, copied=sizes, more=more)
    if not is_tpu:
        return placed
    elapsed_s = begins_s(step.program, chip)
    copying = _with_tables(_with_copies(placed, chip, copied, found, elapsed_s), chip, elapsed_s)
    turned = _with_turned(copying, chip, elapsed_s, by_list=step.by_list)
    return _with_ranked(turned, chip, elapsed_s)


def _with_copies(placed: Level, chip: Chip | None, images: Copied, found: NarrowCopies, elapsed_s: Elapsed) -> Level:
    """With the narrow copies for loops and for convolutions, but for those that stay in fast memory: of those that wait
    for their kernel, where they find room beside all else.
    """
    copies, spans, narrow = dict(found.values), dict(found.spans), dict(found.num_bytes)
    narrow |= dict(_stacks(placed, narrow))
    staying = set(found.spans.keys() & placed.near.keys() - {-1 - value for value in images})
    near = {b: stays for b, stays in placed.near.items() if b not in staying}
    waiting = {b: span for b, span in spans.items() if -1 - b not in images and span[0] < span[1]}
    staying |= staying_copies(elapsed_s, chip, waiting, narrow, placed.room_bytes)
    for buffer in staying | near_throughout(spans, images, begins(placed.near), placed.flow):
        del copies[buffer], spans[buffer], narrow[buffer]
    return replace(
        placed,
        spans={**placed.spans, **spans},
        num_bytes={**placed.num_bytes, **narrow},
        copies=copies,
        near=near,
    )


def _stacks(placed: Level, narrow: Mapping[int, int]) -> Iterator[tuple[int, int]]:
    """What is allocated for loops to fill is as large as what they fill it with."""
    graph = placed.program.graph
    if ALLOCATE not in graph.kinds:
        return
    allocated = {value for op in graph.ops if op.kind == ALLOCATE for value in op.results}
    for filled, num_bytes in narrow.items():
        stack = placed.heirs.get(filled)
        if stack in allocated:
            yield stack, num_bytes


def _with_tables(placed: Level, chip: Chip | None, elapsed_s: Elapsed) -> Level:
    """With the copies of tables whose rows are looked up: made in advance where memory moves while a chip computes.

    They stay in fast memory where room is left for them, those of gradients if they are no large part of it.
    """
    values = placed.program.graph.values
    at_start, states_too = chip is None or chip.buffer_vmem_bytes > 0, chip is None or defers(chip)
    found = copied_tables(placed.program, placed.flow.touches, at_start=at_start, states_too=states_too)
    tables = {-1 - value: value for value in found if -1 - value not in placed.copies}
    spans = {buffer: found[value] for buffer, value in tables.items()}
    num_bytes = {buffer: row_bytes(values[value]) for buffer, value in tables.items()}
    for value, point in turned_back(placed.program).items():
        tables[-1 - value], spans[-1 - value] = value, (point, point)
        num_bytes[-1 - value] = padded_bytes(values[value])
    near = {b: span for b, span in spans.items() if tables[b] in found or is_fetched(num_bytes[b], chip)}
    for buffer in staying_copies(elapsed_s, chip, near, num_bytes, placed.room_bytes):
        del tables[buffer], spans[buffer], num_bytes[buffer]
    return replace(placed, spans={**placed.spans, **spans}, num_bytes={**placed.num_bytes, **num_bytes}, relaid=tables)


def _with_turned(placed: Level, chip: Chip | None, elapsed_s: Elapsed, *, by_list: bool) -> Level:
    """With the copies for updates that lie transposed, which stay in fast memory where they find room.

    A single update has its copies made right before it, and reads them, not what they are of: where that has room,
    they have it. Those of several are made before the first, in the large memory, and fetched.
    """
    program = placed.program
    found, spans = turned_copies(program, placed.flow, chip, by_list=by_list)
    is_alone = len({span[1] for span in spans.values()}) == 1
    for buffer in [copy for copy, value in found.items() if is_alone and _is_kept(placed, value, spans[copy][1])]:
        del found[buffer], spans[buffer]
    sizes = {buffer: padded_bytes(program.graph.values[value]) for buffer, value in found.items()}
    for buffer in staying_copies(elapsed_s, chip, spans, sizes, placed.room_bytes):
        del found[buffer], spans[buffer], sizes[buffer]
    return replace(
        placed,
        spans={**placed.spans, **spans},
        num_bytes={**sizes, **placed.num_bytes},
        relaid={**placed.relaid, **found},
    )


def _is_kept(placed: Level, value: int, point: int) -> bool:
    """Whether a value that a kernel reads stays in fast memory until then."""
    kernel = placed.program.kernels[point]
    return value in kernel.reads and value not in placed.spans and placed.is_near(value, point)


def _with_ranked(placed: Level, chip: Chip | None, elapsed_s: Elapsed) -> Level:
    """With what lies beside sorts and complex numbers: copies stay in fast memory where they find room."""
    begun = -1 - 5 * len(placed.program.graph.values)
    near_bytes = chip.buffer_vmem_bytes if chip else 0
    beside = (*ranked_copies(placed.program, placed.flow), *parts_of_complex(placed.program, placed.flow, near_bytes))
    found = {begun - number: each for number, each in enumerate(beside)}
    found = {b: each for b, each in found.items() if each.is_beside or each.value not in placed.spans}
    if not found:
        return placed
    spans, sizes = ({b: e.span for b, e in found.items()}, {b: e.num_bytes for b, e in found.items()})
    near = {buffer: span for buffer, span in spans.items() if found[buffer].may_stay}
    for buffer in staying_copies(elapsed_s, chip, near, sizes, placed.room_bytes):
        del found[buffer], spans[buffer], sizes[buffer]
    return replace(
        placed,
        spans={**placed.spans, **spans},
        num_bytes={**placed.num_bytes, **sizes},
        relaid={**placed.relaid, **{buffer: each.value for buffer, each in found.items()}},
    )


def _level(
    part: Scheduled,
    where: Where,
    room_bytes: int,
    elsewhere: set[int],
    outputs: frozenset[int],
    *,
    scanned: bool = False,
    copied: Mapping[int, int] = NONE_COPIED,
    more: Sequence[Wanted] = (),
) -> Level:
    program, found, chip = part.program, at_once(part.flow, part.joint), where.chip
    lives = _made_at_once(program, found, lifetimes(found, range(len(program.kernels))))
    if gathers_beside(chip):
        gathers = under_way(program, found)
        lives, found = awaited(lives, found, gathers), with_tuples(program, found, gathers)
    offloads = chip is not None and chip.offloads_collectives
    sums = sums_under_way(program, found, where.mesh, chip.cores) if chip is not None and offloads else []
    outputs = outputs.difference(*(each.writes for each in sums))  # the results are copies of these
    elsewhere = elsewhere | in_blocks(program, found, chip)
    for each in sums:
        lives |= {b: (lives[b][0], max(lives[b][1], each.span[1])) for b in each.reads if b in lives}
    spans = {b: span for b, span in lives.items() if b not in elsewhere and b not in outputs and found.num_bytes[b]}
    room = np.full(len(program.kernels), room_bytes, np.int64)
    bodies = {}
    for point, inner in part.bodies.items():
        op = program.graph.ops[program.kernels[point].ops[-1]]
        bodies[point] = tuple(_body(body, op, where, room_bytes) for body in inner)
        room[point] = min((int(body.room_bytes.min(initial=room_bytes)) for body in bodies[point]), default=room_bytes)
    near, evicted = dict[int, tuple[Stay, ...]](), frozenset[int]()
    if chip is not None and room_bytes and len(room):
        read = {buffer for buffers in found.reads for buffer in buffers}
        first_held = handed_on(program, found, lives)
        updated = first_held.keys() & outputs & read
        kept = {b: lives[b] for b in updated if found.num_bytes[b]}
        lying = {**spans, **kept}
        near = near_buffers(program, found, lying, chip, room, scanned=scanned, copied=copied, more=more)
        begin = begins(near)
        spans = {
            b: (first, min(last, begin.get(b, last))) for b, (first, last) in spans.items() if begin.get(b) != first
        }
        evicted = frozenset(_evicted(spans, near)) - first_held.keys() - {*first_held.values()}
        spans |= {b: (spans[b][0] + 1, spans[b][1]) for b in evicted}
    heirs = {
        new: old
        for point, pairs in enumerate(found.places)
        for new, old in in_place(
            tuple(pair for pair in pairs if pair[0] not in evicted and _hands_over(spans, *pair, point))
        )
    }
    incoming = {-1 - len(program.graph.values) - each.value: each for each in sums if each.num_bytes}
    index_spans = indices(program, at_start=part.scalars_first)
    index_bytes = dict.fromkeys(index_spans, padded_bytes(INDEX))
    made = Level(
        program=program,
        flow=found,
        spans={**index_spans, **spans, **{buffer: each.incoming for buffer, each in incoming.items()}},
        num_bytes={**found.num_bytes, **index_bytes, **{b: each.num_bytes for b, each in incoming.items()}},
        indices=frozenset(index_spans),
        incoming={buffer: each.value for buffer, each in incoming.items()},
        heirs=heirs,
        room_bytes=room,
        outputs=outputs - elsewhere,
        bodies=bodies,
        near=near,
    )
    if chip is None or not room_bytes:
        return made
    return replace(made, bodies={point: _with_carried(made, point, chip) for point in bodies})


def _with_carried(placed: Level, point: int, chip: Chip) -> tuple[Level, ...]:
    """The bodies of a kernel, where a scan's, with what is near around it near in them too.

    What is not is fetched in each turn where room is left, of what all turns have alike.
    """
    op, bodies = placed.program.graph.ops[placed.program.kernels[point].ops[-1]], placed.bodies[point]
    if not all(is_scan(op, body.program.graph) for body in bodies):
        return bodies
    near = [placed.is_near(value, point) for value in op.results]
    least = min((int(body.room_bytes.min(initial=0)) for body in bodies), default=0)
    return tuple(_with_given(body, near, least - int(placed.room_bytes[point]), chip) for body in bodies)


def _with_given(body: Level, near: Sequence[bool], taken_bytes: int, chip: Chip) -> Level:
    """A body with what it is given near where ``near`` says so, or fetched; so much room is ``taken_bytes`` around."""
    given, room = left_outside(body.program.graph, near), body.room_bytes - max(0, taken_bytes)
    fetched = near_buffers(body.program, body.flow, {}, chip, room, scanned=True, fetched=given) if given else {}
    return replace(body, near={**body.near, **fetched, **carried(body.program, body.flow, near)}, room_bytes=room)


def _evicted(spans: Mapping[int, tuple[int, int]], near: Mapping[int, Sequence[Stay]]) -> Iterator[int]:
    """The buffers that a kernel leaves in fast memory and that lie in the large one later: they are copied there once
    they are made, when what the kernel read may be gone (XLA's ``Evict``).
    """
    for buffer, (first, last) in spans.items():
        if first < last and near.get(buffer, ()) and near[buffer][0].first == first:
            yield buffer


def _hands_over(spans: Mapping[int, tuple[int, int]], new: int, old: int, point: int) -> bool:
    return new in spans and old in spans and spans[old][1] == point


def _made_at_once(program: Program, found: Flow, lives: dict[int, tuple[int, int]]) -> dict[int, tuple[int, int]]:
    """The same lives, but for what is filled with constants for loops to begin with: each loop fills its own."""
    loops = {point for point, kernel in enumerate(program.kernels) if kernel.bodies}
    readers: dict[int, list[int]] = {}
    for point, buffers in enumerate(found.reads):
        for buffer in buffers:
            readers.setdefault(buffer, []).append(point)
    made = set(program.graph.arguments) | found.maker.keys()
    for buffer, points in readers.items():
        filled = made.isdisjoint(program.kernels[found.maker[buffer]].reads)
        if filled and loops.issuperset(points) and buffer not in found.held:
            lives[buffer] = (points[0], points[0])
    return lives


def _body(body: Scheduled, op: Op, where: Where, room_bytes: int) -> Level:
    elsewhere = homes(body.program, body.flow, op.kind == "while")
    return _level(body, where, room_bytes, elsewhere, frozenset(), scanned=is_scan(op, body.program.graph))
