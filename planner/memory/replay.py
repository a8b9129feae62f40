"""The compiler's heap of a program's temporaries, replayed."""

from __future__ import annotations

from collections.abc import Sequence

from .heap import Heap
from .level import Level

ALIGNMENT_BYTES = 16 << 10
"""Of what the heap gives."""


def heap_bytes(level: Level) -> int:
    """How large the heap of a step's temporaries grows, loops' bodies in the same heap as what is around them.

    Of what a kernel makes, that comes first which is needed no more first; before it, where its parts begin.
    """
    heap = Heap()
    _run(level, heap)
    return heap.size_bytes


def _run(level: Level, heap: Heap) -> None:
    starts, ends = _by_point(level, 0), _by_point(level, 1)
    inherited = set(level.heirs.values())
    places: dict[int, tuple[int, int]] = {}  # where a buffer starts, and the bytes that were taken there
    for point in range(len(level.program.kernels)):
        for buffer in sorted(starts[point], key=lambda b: _turn(level, b)):
            old = level.heirs.get(buffer)  # which may itself lie outside, where a result will
            num_bytes = -(-level.num_bytes[buffer] // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            known = places.get(old) if old is not None else None
            places[buffer] = known or (heap.take(num_bytes, below=buffer in level.incoming), num_bytes)
        for body in level.bodies.get(point, ()):
            _run(body, heap)
        for buffer in ends[point]:
            if buffer not in inherited:
                heap.give(*places[buffer])


def _turn(level: Level, buffer: int) -> tuple[bool, bool, int]:
    """When a buffer's turn comes at a point: after indices, and after what the kernel before left in fast memory."""
    first, last = level.spans[buffer]
    stays = level.near.get(buffer, ())
    return buffer not in level.indices, not (stays and stays[0].first < first), last


def _by_point(level: Level, side: int) -> Sequence[list[int]]:
    points: list[list[int]] = [[] for _ in level.program.kernels]
    for buffer, span in level.spans.items():
        points[span[side]].append(buffer)
    return points
