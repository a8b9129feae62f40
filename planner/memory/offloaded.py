"""Sums over devices that a chip's other cores make beside its work: started at once, awaited where they are read.

Meanwhile what is summed lies there, and the sum, and what has come from the other devices: of ``n`` of them, ``n - 1``
``n``-ths of the sum. What is gathered or scattered so needs nothing besides.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ..kernels import Program
from ..kinds import ALL_REDUCE
from .deferred import PRODUCTS
from .flow import Flow

Span = tuple[int, int]


class UnderWay(NamedTuple):
    """A sum, by its value: the buffers that it reads, from when to when it is under way, what comes in meanwhile."""

    value: int
    reads: tuple[int, ...]
    span: Span
    num_bytes: int


def sums_under_way(program: Program, flow: Flow, lives: Mapping[int, Span], mesh: Mapping[str, int]) -> list[UnderWay]:
    """The sums over devices of a program in its order, or of a loop's body; ``mesh`` has the sizes of the axes."""
    return list(_sums(program, flow, lives, mesh))


def _sums(program: Program, flow: Flow, lives: Mapping[int, Span], mesh: Mapping[str, int]) -> Iterator[UnderWay]:
    first_reads: dict[int, int] = {}
    for point, buffers in enumerate(flow.reads):
        for buffer in buffers:
            first_reads.setdefault(buffer, point)
    for point, kernel in enumerate(program.kernels):
        op = program.graph.ops[kernel.ops[-1]]
        if op.kind == ALL_REDUCE and len(kernel.ops) == 1:
            parts = _devices(op.attributes.get("axes", ()), mesh)
            read = min((first_reads.get(buffer, len(program.kernels)) for buffer in flow.writes[point]), default=point)
            num_bytes = sum(flow.num_bytes[buffer] for buffer in flow.writes[point]) * (parts - 1) // parts
            yield UnderWay(kernel.writes[0], flow.reads[point], (point, max(point, read - 1)), num_bytes)


def awaited_last(program: Program, flow: Flow) -> list[int]:
    """The order with what is computed of such sums behind all else, but for what products or loops need."""
    graph, kernels = program.graph, program.kernels
    kinds = [{graph.ops[op].kind for op in kernel.ops} for kernel in kernels]
    needed = set[int]()
    for kernel in reversed(range(len(kernels))):
        if kernel in needed or kernels[kernel].bodies or kinds[kernel] & PRODUCTS:
            needed.update(flow.maker[value] for value in flow.operands[kernel])
    sums = {kernel for kernel, found in enumerate(kinds) if ALL_REDUCE in found}
    late = set[int]()
    for kernel, operands in enumerate(flow.operands):
        before = {flow.maker[value] for value in operands}
        waits = not before.isdisjoint(late) or (kernel not in sums and not before.isdisjoint(sums))
        if waits and kernel not in needed and not kernels[kernel].bodies and not kinds[kernel] & PRODUCTS:
            late.add(kernel)
    order = range(len(kernels))
    return [*(k for k in order if k not in late), *(k for k in order if k in late)]


def _devices(axes: tuple[str, ...], mesh: Mapping[str, int]) -> int:
    """How many devices there are along some axes; of ``x:(2)4``, a part of an axis, four."""
    found = 1
    for axis in axes:
        found *= mesh[axis] if axis in mesh else int(axis.rpartition(")")[2])
    return found
