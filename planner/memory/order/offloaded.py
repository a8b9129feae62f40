"""Sums over devices that a chip's other cores make beside its work: awaited where they are read (``apart``).

Meanwhile what is summed lies there, and the sum, of which a step's result is a copy made at the end. These cores take
one collective after the other, and what comes from other devices has its place while it waits to begin, from the one
before on, until it ends. Programs of libtpu 0.0.51 for tpu7x:2x2x2 with one collective each say how much that is:
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
from ...lookups import GATHER
from ...partition.layout import ways
from ..flow.flow import Flow
from .apart import done_apart

Span = tuple[int, int]
UNDER_WAY = frozenset({ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, GATHER})


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
    return _one_place(list(_sums(program, flow, mesh, cores)))


def _one_place(sums: list[UnderWay]) -> list[UnderWay]:
    """The same with one place for what comes in of all that are under way at a time, as large as the most of any, until
    the last of them ends: three of tpu7x's programs have it there until then, one of them of four sums in one place
    (another has two places for two sums).
    """
    found, largest, until = list(sums), -1, -1
    for n, each in enumerate(sums):
        if not each.num_bytes:
            continue
        if largest < 0 or each.span[0] > until:
            found[n] = each._replace(incoming=(max(each.incoming[0], until + 1), each.span[1]))
            largest, until = n, -1
        else:
            begin = found[largest].incoming[0]
            least, largest = (largest, n) if each.num_bytes > found[largest].num_bytes else (n, largest)
            found[least] = found[least]._replace(num_bytes=0)
            found[largest] = found[largest]._replace(incoming=(begin, max(until, each.span[1])))
        until = max(until, each.span[1])
    return found


def _sums(program: Program, flow: Flow, mesh: Mapping[str, int], cores: int) -> Iterator[UnderWay]:
    first_reads: dict[int, int] = {}
    for point, buffers in enumerate(flow.reads):
        for buffer in buffers:
            first_reads.setdefault(buffer, point)
    last, before = len(program.kernels) - 1, 0
    for point, kernel in enumerate(program.kernels):
        op, kind = program.graph.ops[kernel.ops[-1]], done_apart(program.graph, kernel)
        if kind not in UNDER_WAY:
            continue
        read = min((first_reads.get(buffer, last + 1) for buffer in flow.writes[point]), default=point)
        made = sum(flow.num_bytes[buffer] for buffer in flow.writes[point])
        span = point, max(point, read - 1)
        if kind == GATHER:
            yield UnderWay(kernel.writes[0], flow.reads[point], (), span, 0, span)
            continue
        coming = incoming_bytes(op.kind, made, op.attributes.get("axes", ()), mesh, cores)
        yield UnderWay(kernel.writes[0], flow.reads[point], flow.writes[point], span, coming, (before, point))
        before = min(point + 1, last)


def incoming_bytes(kind: str, made: int, axes: Sequence[str], mesh: Mapping[str, int], cores: int) -> int:
    """What comes in meanwhile for a collective along ``axes`` that makes so many bytes."""
    parts = ways(axes, mesh)
    chips = parts // cores if parts > cores and _has_whole_chips(axes, mesh) else parts
    if kind == ALL_GATHER:
        return 0
    if kind == ALL_REDUCE:
        return made * (chips - 1) // parts
    return made * max(parts - 2, 0) if chips * cores < math.prod(mesh.values()) else 0


def _has_whole_chips(axes: Sequence[str], mesh: Mapping[str, int]) -> bool:
    """Whether devices along these axes are whole chips: the last axis that has several, or its minor part, is there."""
    last = next((name for name in reversed([*mesh]) if mesh[name] > 1), "")
    return any(axis == last or _ends(axis, last, mesh) for axis in axes)


def _ends(axis: str, last: str, mesh: Mapping[str, int]) -> bool:
    name, _, part = axis.partition(":")
    before, _, size = part.strip("(").partition(")")
    return bool(part) and name == last and int(before) * int(size) == mesh[last]
