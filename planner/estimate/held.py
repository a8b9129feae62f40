"""What a device holds, as an estimate shows it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ..memory import Memory
from .figures import MemoryPoint, PredictedMemory
from .late import late
from .left_out import left_out_bytes
from .runs import main_op


def held(found: Memory) -> PredictedMemory:
    """What a device holds of a step, of its ``memory``."""
    return PredictedMemory(
        by_kind=late(lambda: found.bytes_by_kind),
        tensors=late(lambda: found.tensors),
        timeline=late(lambda: tuple(_timeline(found))),
        argument_bytes=found.argument_bytes,
        output_bytes=found.output_bytes,
        alias_bytes=found.alias_bytes,
        temp_bytes=found.temp_bytes,
        code_bytes=found.code_bytes,
        left_out_bytes=left_out_bytes(found),
    )


def _timeline(found: Memory) -> Iterator[MemoryPoint]:
    """What is there at every point, and what is live at each."""
    always = Counter(found.bytes_by_kind)
    always.subtract(found.peak.bytes_by_kind if found.peak else {})
    for point in found.points:
        live = dict(always)
        for kind, num_bytes in point.bytes_by_kind.items():
            live[kind] = live.get(kind, 0) + num_bytes
        yield MemoryPoint(label=main_op(point.program, point.kernel).kind, by_kind=live)
