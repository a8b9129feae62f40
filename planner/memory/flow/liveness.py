"""Which buffers live when the kernels run in some order, and the bytes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from .flow import Flow
from .places import Pairs


def lifetimes(flow: Flow, order: Sequence[int]) -> dict[int, tuple[int, int]]:
    """First and last point of each buffer's life: from the kernel that makes it to the last that reads it."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    reads, writes = flow.reads, flow.writes
    for point, kernel in enumerate(order):
        for buffer in reads[kernel]:
            last[buffer] = point
        for buffer in writes[kernel]:
            first[buffer] = last[buffer] = point
    last.update(dict.fromkeys(flow.held, len(order) - 1))
    return {buffer: (begin, last[buffer]) for buffer, begin in first.items()}


def live_bytes(flow: Flow, order: Sequence[int]) -> list[int]:
    """Bytes live while each kernel runs: what it reads and makes, what waits for others, and what its bodies need."""
    if not order:
        return []
    spans, num_bytes = lifetimes(flow, order), flow.num_bytes
    change = [0] * (len(order) + 1)
    for buffer, (first, last) in spans.items():
        size = num_bytes[buffer]
        change[first] += size
        change[last + 1] -= size
    live = list(accumulate(change[:-1]))
    inside, places = flow.inside, flow.places
    for point, kernel in enumerate(order):
        if inside[kernel]:
            live[point] += inside[kernel]
        pairs = places[kernel]
        if pairs:
            ending = [pair for pair in pairs if spans[pair[1]][1] == point]
            if len(ending) == 1:
                live[point] -= num_bytes[ending[0][0]]
            elif ending:
                live[point] -= sum([num_bytes[new] for new, _ in in_place(ending)])
    return live


def in_place(pairs: Sequence[tuple[int, int]]) -> Pairs:
    """The pairs (new, old) of a kernel's buffers of which the new may lie where the old did; each serves once."""
    taken: dict[int, int] = {}
    placed = set[int]()
    for new, old in pairs:
        if old not in taken and new not in placed:
            taken[old] = new
            placed.add(new)
    return tuple((new, old) for old, new in taken.items())


def scheduled_peak_bytes(flow: Flow, order: Sequence[int], donated: Mapping[int, int] | None = None) -> int:
    """The most that is live at once, as the compiler's schedulers reckon it, beside the arguments.

    ``donated`` has the argument in whose place each result lies that is in one: both count where the result is made
    before the argument is last read or as it is, and neither in between where it is made later (``HeapSimulator``
    allocates what shares memory anew).
    """
    if not donated:
        return max(live_bytes(flow, order), default=0)
    num_bytes = {**flow.num_bytes, **dict.fromkeys(donated, 0)}
    live = live_bytes(replace(flow, num_bytes=num_bytes), order)
    at = {kernel: point for point, kernel in enumerate(order)}
    for result, argument in donated.items():
        made, size = at[flow.maker[result]], flow.num_bytes[result]
        last = max([at[kernel] for kernel in flow.touches.get(argument, ())], default=0)
        for point in range(made, last + 1):
            live[point] += size
        for point in range(last + 1, made):
            live[point] -= size
    return max(live, default=0)
