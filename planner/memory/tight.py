"""What the compiler does when a program would nearly fill the memory: temporaries lie where results will."""

from __future__ import annotations

from .level import Level

TIGHT = 0.85


def is_tight(needed_bytes: int, limit_bytes: int | None) -> bool:
    """Whether a program needs so much of a device's memory that its temporaries are put where its results will lie.

    With 13.1 GiB of v5e's 15.5 the compiler does not, with 14.0 it does.
    """
    return limit_bytes is not None and needed_bytes > TIGHT * limit_bytes


def lent(level: Level) -> frozenset[int]:
    """The temporaries that find a place in the memory of a result not yet written, the largest first."""
    free = {output: level.flow.maker[output] for output in level.outputs}
    places = sorted(free, key=lambda output: -level.num_bytes[output])
    taken: dict[int, list[tuple[int, int]]] = {output: [] for output in places}
    found = set()
    for buffer in sorted(level.spans, key=lambda b: -level.num_bytes[b]):
        span = level.spans[buffer]
        for output in places:
            if level.num_bytes[output] < level.num_bytes[buffer]:
                break
            if span[1] <= free[output] and all(last < span[0] or span[1] < first for first, last in taken[output]):
                taken[output].append(span)
                found.add(buffer)
                break
    return frozenset(found)
