"""What loops and updates of slices write into what they read: to memory space assignment it is one buffer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...graph import Graph
from ...kernels import Program
from ..flow.flow import Flow
from ..flow.liveness import in_place
from ..flow.places import IN_PLACE, written_into
from .near import Stay

Lives = Mapping[int, tuple[int, int]]


def handed_on(program: Program, flow: Flow, lives: Lives) -> dict[int, int]:
    """The buffers that are made in the place of what they begin with, by loops and by updates of slices, and the first
    buffer, or the argument of an update, that lay there: they have one address (``HloAliasAnalysis``).
    """
    first, arguments = dict[int, int](), frozenset(program.graph.arguments)
    updating = {number for number, op in enumerate(program.graph.ops) if op.kind in IN_PLACE}
    for point, kernel in enumerate(program.kernels):
        if not updating.isdisjoint(kernel.ops):
            written = tuple(written_into(program.graph, kernel, flow.buffer))
            pairs = [p for p in written if p[0] in lives and lives.get(p[1], (-1, -1))[1] == point]
            if not kernel.bodies:
                first |= {new: old for new, old in written if new in lives and old in arguments}
            first |= {new: first.get(old, old) for new, old in in_place(pairs)}
    return first


def with_handed_on(
    found: Mapping[int, tuple[Stay, ...]], first: Mapping[int, int], lives: Lives
) -> dict[int, tuple[Stay, ...]]:
    """The stays of the buffers that were ``handed_on`` too, each in its own life."""
    parts = {buffer: tuple(_within(found.get(root, ()), *lives[buffer])) for buffer, root in first.items()}
    parts |= {root: tuple(_within(found.get(root, ()), *lives[root])) for root in {*first.values()} & lives.keys()}
    return {buffer: stays for buffer, stays in {**found, **parts}.items() if stays}


def carried(body: Program, flow: Flow, near: Sequence[bool]) -> dict[int, tuple[Stay, ...]]:
    """What lies near in a loop's body all the time: what it is given and hands on there, of whose places ``near`` says
    it.
    """
    pairs = zip(near, body.graph.arguments, body.graph.results, strict=False)
    held = [pair for is_near, *pair in pairs if is_near]
    everywhere = (Stay(0, len(body.kernels) - 1, is_last=True),)
    return {value: everywhere for before, after in held for value in (before, flow.buffer.get(after, after))}


def left_outside(body: Graph, near: Sequence[bool]) -> frozenset[int]:
    """The arguments of a loop's body that all turns have alike and that do not lie near around the loop."""
    pairs = zip(near, body.arguments, body.results, strict=False)
    return frozenset(before for is_near, before, after in pairs if before == after and not is_near)


def _within(stays: Sequence[Stay], begin: int, end: int) -> Iterator[Stay]:
    for stay in stays:
        if stay.first <= end and stay.last >= begin:
            last = min(stay.last, end)
            yield Stay(max(stay.first, begin), last, stay.is_last or last == end)
