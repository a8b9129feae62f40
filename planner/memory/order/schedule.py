"""The order in which the compiler runs a program's kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from operator import eq

from ...chip import Chip
from ...compute.copies.turned import lying_turned
from ...kernels import Kernel, Program
from ..flow.flow import Flow, flow, regrouped
from ..flow.liveness import scheduled_peak_bytes
from ..tensors.temporaries import temporary_bytes
from ..tensors.tiles import Sizes
from .barriers import with_barriers
from .combined import Members, combined, in_order, with_tuples
from .deferred import deferred, defers
from .filled import with_filled
from .gathered import gathers_beside
from .hidden import hidden
from .orders import depth_first_order, list_order, post_order
from .outside import copies_outside
from .permuted import beside_permutes
from .replaced import after_readers
from .rounded import behind_updates

LIST_ORDER, POST_ORDER = 0, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduled:
    """A program in the compiler's order, with its buffers, and the bodies at each of its points.

    ``needed_bytes`` is what the list scheduler thinks that a loop needs whose body it is: its temporaries and all that
    it is given, ``given_bytes``, though most of that lies in its caller's memory already. ``scalars_first`` if what
    many read, as numbers of devices' parts, is made before all else, ``by_list`` if the list scheduler's order is
    taken. ``joint`` are the sums over devices, by their points, that are one.
    """

    program: Program
    flow: Flow
    needed_bytes: int
    given_bytes: int
    bodies: Mapping[int, tuple[Scheduled, ...]]
    scalars_first: bool = False
    by_list: bool = False
    joint: Members = ()


def schedule(program: Program) -> Program:
    """The same kernels in the compiler's order, loops' bodies too.

    XLA's memory scheduler tries three orders and takes the one whose live bytes peak lowest, the first of those that
    tie (``hlo_memory_scheduler.cc``; libtpu logs these peaks, and what is live when, into ``TPU_LOG_DIR`` where
    ``TPU_VMODULE=hlo_memory_scheduler=2,heap_simulator=1`` and ``TPU_MIN_LOG_LEVEL=0``). What a loop is given counts
    once there, as it lies in its caller's memory (decoders on v4, v5e and v6e whose products go round rings or whose
    layers are scanned). Of what the latency-hiding scheduler then moves to hide collectives only the products are
    followed that it keeps for the end and, where gathers are made beside products, or all that is sent by other cores,
    all that it does to begin these early (``deferred``, ``hidden``, where the chip is known).
    """
    return put_in_order(program).program


def put_in_order(program: Program, chip: Chip | None = None) -> Scheduled:
    """A program in the compiler's order with what was learnt on the way."""
    offloads = chip is not None and chip.offloads_collectives
    found = _scheduled(program, temporary_bytes(program, chip), offloads, rounds=chip is not None)
    edge = chip.matrix_unit.edge if chip and chip.matrix_unit else 0
    found = _reordered(found, copies_outside(found.program, lying_turned(program.graph, edge)))
    if chip is None or offloads:
        return found if chip is None else _with_gathers(found, chip, program.graph.mesh)
    if defers(chip):
        found = _reordered(found, deferred(found.program, found.flow, range(len(found.program.kernels))))
    if chip.buffer_vmem_bytes:
        found = _reordered(found, beside_permutes(found.program, found.flow))
    return _with_gathers(found, chip, program.graph.mesh) if gathers_beside(chip) else found


def _inside(found: Scheduled, changed: Callable[[Scheduled], Scheduled]) -> Scheduled:
    """With each body of its loops changed."""
    bodies = {point: tuple(map(changed, inner)) for point, inner in found.bodies.items()}
    kernels = list(found.program.kernels)
    for point, inner in bodies.items():
        kernels[point] = replace(kernels[point], bodies=tuple(body.program for body in inner))
    return replace(found, program=replace(found.program, kernels=tuple(kernels)), bodies=bodies)


def _with_gathers(found: Scheduled, chip: Chip, mesh: Mapping[str, int]) -> Scheduled:
    """With each gather, and what else is hidden, where it begins, in the bodies of loops too."""
    found = _inside(found, lambda body: _with_gathers(body, chip, mesh))
    return _reordered(found, hidden(found.program, found.flow, chip, found.joint, mesh))


def _reordered(found: Scheduled, order: Sequence[int]) -> Scheduled:
    """In another order, in which what is one stays together, behind all that it waits for."""
    if all(map(eq, order, count())):
        return found
    at = {kernel: point for point, kernel in enumerate(order)}
    joint = tuple(tuple(sorted(at[kernel] for kernel in group)) for group in found.joint)
    moved = _moved(found, order, joint)
    if all(group[-1] - group[0] < len(group) for group in joint):
        return moved
    return _reordered(moved, [*chain.from_iterable(in_order(moved.flow, joint))])


def _moved(found: Scheduled, order: Sequence[int], joint: Members) -> Scheduled:
    return replace(
        found,
        program=replace(found.program, kernels=tuple(found.program.kernels[k] for k in order)),
        flow=regrouped(found.flow, [(k,) for k in order]),
        bodies={point: found.bodies[k] for point, k in enumerate(order) if k in found.bodies},
        joint=joint,
    )


def _scheduled(program: Program, sizes: Sizes, offloads: bool, rounds: bool) -> Scheduled:
    """A program, or the body of a loop in it, in order; ``sizes`` has the bytes of a temporary. ``rounds`` if weights
    are rounded in the kernels of their updates.
    """
    inner = {
        number: tuple(_scheduled(body, sizes, offloads, rounds) for body in kernel.bodies)
        for number, kernel in enumerate(program.kernels)
        if kernel.bodies
    }
    needs = {id(body.program): body.needed_bytes for bodies in inner.values() for body in bodies}
    kernels = list(program.kernels)
    for number, bodies in inner.items():
        kernels[number] = replace(kernels[number], bodies=tuple(body.program for body in bodies))
    found = flow(replace(program, kernels=tuple(kernels)), sizes, lambda body: needs[id(body)], offloads=offloads)
    groups = combined(program, found)
    found = behind_updates(program, found, groups) if rounds else found
    found = with_tuples(found, groups)
    handed = {number: max([body.given_bytes for body in bodies]) for number, bodies in inner.items()}
    donated = _donated(program, found)
    seen = after_readers(with_filled(program, found), donated, chain.from_iterable(groups))
    order, peak, best = _best(seen, groups, program.kernels, handed, donated)
    given = sum(sizes(program.graph, v) for v in program.graph.arguments)
    at = {number: point for point, number in enumerate(order)}
    return Scheduled(
        program=replace(program, kernels=tuple(kernels[number] for number in order)),
        flow=regrouped(found, [(number,) for number in order]),
        needed_bytes=peak + given,
        given_bytes=given,
        bodies={point: inner[number] for point, number in enumerate(order) if number in inner},
        scalars_first=best != POST_ORDER,
        by_list=best == LIST_ORDER,
        joint=tuple(tuple(sorted(at[kernel] for kernel in group)) for group in groups),
    )


def _donated(program: Program, found: Flow) -> dict[int, int]:
    """The results that lie in arguments' place, by these."""
    graph = program.graph
    held = {
        found.buffer.get(graph.results[place], -1): graph.arguments[given] for place, given in graph.aliases.items()
    }
    return {result: argument for result, argument in held.items() if result in found.num_bytes}


def _best(
    found: Flow,
    groups: Members,
    kernels: Sequence[Kernel],
    handed: Mapping[int, int],
    donated: Mapping[int, int],
) -> tuple[list[int], int, int]:
    """The order, its peak, and which of the three it is; what is ``handed`` to loops, by their kernels, is theirs
    for the list scheduler alone; ``donated`` has the arguments in whose place results lie.
    """
    members = in_order(found, groups) if groups else ()
    joint = regrouped(found, members) if groups else found
    alone = tuple((number,) for number in range(len(kernels)))
    grown, own = with_barriers(joint, [[kernels[number] for number in group] for group in members or alone])
    written = post_order(grown)
    tried = (list_order(grown), depth_first_order(grown, written), written)
    orders = [[own[k] for k in order if own[k] >= 0] for order in tried]
    groups_inside = zip(joint.inside, members or alone, strict=True)
    inside = tuple([needed - handed.get(group[0], 0) for needed, group in groups_inside]) if handed else joint.inside
    counted = replace(joint, inside=inside)
    peaks = [scheduled_peak_bytes(counted, order, donated) for order in orders]
    best = peaks.index(min(peaks))
    order = orders[best]
    return [kernel for point in order for kernel in members[point]] if members else order, peaks[best], best
