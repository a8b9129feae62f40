"""What a device holds, as an estimate shows it."""

from __future__ import annotations

from collections.abc import Mapping

from ..kernels import Program
from ..topology import Machine
from .figures import Memory, MemoryPoint, PeakTensor


def held(program: Program, machine: Machine, kinds: Mapping[str, str]) -> Memory:
    """What a device holds of a program; ``kinds`` says what each argument is for, by its path."""
    graph = program.graph
    by_kind: dict[str, int] = {}
    largest = []
    for name, value in zip(graph.names, graph.arguments, strict=True):
        kind = kinds.get(name, "arguments")
        held = graph.values[value].num_bytes
        by_kind[kind] = by_kind.get(kind, 0) + held
        largest.append(PeakTensor(name=name, kind=kind, num_bytes=held))
    largest.sort(key=lambda t: -t.num_bytes)
    return Memory(by_kind=by_kind, largest=tuple(largest), timeline=(MemoryPoint(label="all", by_kind=by_kind),))
