"""Sums over devices that a chip's other cores make beside its work: started at once, awaited where they are read.

Meanwhile what is summed lies there, and the sum, of which a step's result is a copy made at the end. These cores take
one collective after the other, and what comes from other devices has its place while it waits to begin, from the one
before on, until it does. Programs of libtpu 0.0.51 for tpu7x:2x2x2 with one collective each say how much that is:
- to sum over ``n`` devices, ``n - 1`` ``n``-ths of the sum; over whole chips, of which each half reads what the other
  gives where that lies, ``n / 2 - 1`` ``n``-ths;
- to sum and scatter, ``n - 2`` ``n``-ths of what is summed, but over all chips nothing;
- to gather, nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ...kernels import Program
from ...kinds import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from ..flow.flow import Flow
from .deferred import PRODUCTS

Span = tuple[int, int]
SENT = frozenset({ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER})


class UnderWay(NamedTuple):
    """What is sent, by its value: the buffers that it reads and makes, from when to when it is under way, what comes in
    and where that has its place meanwhile, from when to when.
    """

    value: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    span: Span
    num_bytes: int
    incoming: Span


def sums_under_way(program: Program, flow: Flow, mesh: Mapping[str, int], cores: int) -> list[UnderWay]:
    """The sums over devices of a program in its order, or of a loop's body, and gathers.

    ``mesh`` has the sizes of the axes, ``cores`` is how many devices a chip has: neighbours along the last axis.
    """
    return list(_sums(program, flow, mesh, cores))


def _sums(program: Program, flow: Flow, mesh: Mapping[str, int], cores: int) -> Iterator[UnderWay]:
    first_reads: dict[int, int] = {}
    for point, buffers in enumerate(flow.reads):
        for buffer in buffers:
            first_reads.setdefault(buffer, point)
    last, before = len(program.kernels) - 1, 0
    for point, kernel in enumerate(program.kernels):
        op = program.graph.ops[kernel.ops[-1]]
        if op.kind not in SENT or len(kernel.ops) > 1:
            continue
        read = min((first_reads.get(buffer, last + 1) for buffer in flow.writes[point]), default=point)
        made = sum(flow.num_bytes[buffer] for buffer in flow.writes[point])
        coming = incoming_bytes(op.kind, made, op.attributes.get("axes", ()), mesh, cores)
        span = point, max(point, read - 1)
        yield UnderWay(kernel.writes[0], flow.reads[point], flow.writes[point], span, coming, (before, point))
        before = min(point + 1, last)


def incoming_bytes(kind: str, made: int, axes: Sequence[str], mesh: Mapping[str, int], cores: int) -> int:
    """What comes in meanwhile for a collective along ``axes`` that makes so many bytes."""
    parts = _devices(axes, mesh)
    chips = parts // cores if parts > cores and _has_whole_chips(axes, mesh) else parts
    if kind == ALL_GATHER:
        return 0
    if kind == ALL_REDUCE:
        return made * (chips - 1) // parts
    return made * max(parts - 2, 0) if chips * cores < math.prod(mesh.values()) else 0


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


def products_last(program: Program, flow: Flow) -> list[int]:
    """The order with the products that no other product or loop needs behind all else, and what needs these."""
    graph, kernels = program.graph, program.kernels
    works = [bool(kernel.bodies) or any(graph.ops[op].kind in PRODUCTS for op in kernel.ops) for kernel in kernels]
    needed, late = set[int](), set[int]()
    for kernel in reversed(range(len(kernels))):
        if kernel in needed or works[kernel]:
            needed.update(flow.maker[value] for value in flow.operands[kernel])
    for kernel, operands in enumerate(flow.operands):
        if (works[kernel] and not kernels[kernel].bodies and kernel not in needed) or any(
            flow.maker[value] in late for value in operands
        ):
            late.add(kernel)
    order = range(len(kernels))
    return [*(k for k in order if k not in late), *(k for k in order if k in late)]


def _has_whole_chips(axes: Sequence[str], mesh: Mapping[str, int]) -> bool:
    """Whether devices along these axes are whole chips: the last axis that has several, or its minor part, is there."""
    last = next((name for name in reversed([*mesh]) if mesh[name] > 1), "")
    return any(axis == last or _ends(axis, last, mesh) for axis in axes)


def _ends(axis: str, last: str, mesh: Mapping[str, int]) -> bool:
    name, _, part = axis.partition(":")
    before, _, size = part.strip("(").partition(")")
    return bool(part) and name == last and int(before) * int(size) == mesh[last]


def _devices(axes: Sequence[str], mesh: Mapping[str, int]) -> int:
    """How many devices there are along some axes; of ``x:(2)4``, a part of an axis, four."""
    found = 1
    for axis in axes:
        found *= mesh[axis] if axis in mesh else int(axis.rpartition(")")[2])
    return found
