"""Which buffers live when the kernels run in some order, and the bytes of it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from .flow import Flow
from .places import Pairs


def lifetimes(flow: Flow, order: Sequence[int]) -> dict[int, tuple[int, int]]:
    """First and last point of each buffer's life: from the kernel that makes it to the last that reads it."""
    spans: dict[int, tuple[int, int]] = {}
    for point, kernel in enumerate(order):
        for buffer in flow.reads[kernel]:
            spans[buffer] = (spans[buffer][0], point)
        for buffer in flow.writes[kernel]:
            spans[buffer] = (point, point)
    end = len(order) - 1
    return spans | {buffer: (spans[buffer][0], end) for buffer in flow.held}


def live_bytes(flow: Flow, order: Sequence[int]) -> list[int]:
    """Bytes live while each kernel runs: what it reads and makes, what waits for others, and what its bodies need."""
    if not order:
        return []
    spans = lifetimes(flow, order)
    change = [0] * (len(order) + 1)
    for buffer, (first, last) in spans.items():
        change[first] += flow.num_bytes[buffer]
        change[last + 1] -= flow.num_bytes[buffer]
    live = list(accumulate(change[:-1]))
    for point, kernel in enumerate(order):
        live[point] += flow.inside[kernel]
        ending = [pair for pair in flow.places[kernel] if spans[pair[1]][1] == point]
        if ending:
            live[point] -= sum(flow.num_bytes[new] for new, _ in in_place(ending))
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


def scheduled_peak_bytes(flow: Flow, order: Sequence[int]) -> int:
    """The most that is live at once, as the compiler's schedulers reckon it."""
    return max(live_bytes(flow, order), default=0)
