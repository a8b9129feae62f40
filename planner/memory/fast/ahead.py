"""The argument that a program finds in fast memory as it begins: the one before has brought it there, as it ends.

XLA's memory space assignment does so with one argument that looks like a weight, the largest one, of such the one that
is read most often (``AllocateCrossProgramPrefetchBuffer``), before anything else finds room. Seen on v4, v5e, v5p and
v6e: of sixteen programs each has there what this says, of equals the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from ...graph import Graph, Op
from ...images import CONVOLUTION
from ...kernels import Program
from ...lookups import GATHER
from .near import PREFERRED_OVERLAP, Memory, Stay, Wanted
from .shelf import Shelf

FREED = 0.6
"""In what part of a step's time at most it lies there where others have its room in between
(``kCrossProgramPrefetchOccupyFreeingLimit``).
"""

WEIGHED: Mapping[str, Callable[[Op], Sequence[int]]] = {
    "dot_general": lambda op: (),
    CONVOLUTION: lambda op: op.operands[:1],
    GATHER: lambda op: op.operands[1:],
}
"""What reads weights, and what of its operands is none."""

RENAMED = frozenset({"reshape", "transpose"})


def ahead(program: Program, wanted: Iterable[Wanted], memory: Memory) -> Wanted | None:
    """The argument that lies in fast memory when a program begins, if any does."""
    graph, most = program.graph, int(memory.room_bytes.max(initial=0))
    mine = [each for each in wanted if each.made < 0 and each.uses and each.num_bytes <= most]
    weights = _weights(graph, {each.number for each in mine})
    found = (each for each in mine if each.number in weights)
    return max(found, key=lambda each: (each.num_bytes, len(each.uses), each.number), default=None)


def _weights(graph: Graph, values: set[int]) -> set[int]:
    """Which of these values are arguments that are neither donated nor given back, which products alone read as they
    are, or from which rows are taken, and no image that is convolved (``LooksLikeAnActivation``).
    """
    donated = {graph.arguments[position] for position in graph.aliases.values()}
    found = values.intersection(graph.arguments) - donated - {*graph.results}
    names = {value: value for value in found}
    for op in graph.ops:
        read = {names[value] for value in op.operands if value in names}
        if not read:
            continue
        if op.kind in RENAMED:
            names.update((made, root) for made in op.results for root in read)
        elif op.kind not in WEIGHED:
            found -= read
        else:
            found -= {names[value] for value in WEIGHED[op.kind](op) if value in names}
    return found


def brought(each: Wanted, memory: Memory, shelf: Shelf) -> tuple[Stay, ...]:
    """When it lies there: until it is read last, and again as the program ends, for the next one; where that is most of
    the time, or all that is live has room, all the time.
    """
    last, end = each.uses[-1], len(memory.begins_s) - 2
    again = _again(each, memory)
    place = shelf.place(each.num_bytes, 0, end if again is None else last)
    if place is None:
        return ()
    shelf.take(place, each.num_bytes, 0, end if again is None else last)
    if again is not None and shelf.is_free(place, each.num_bytes, again, end):
        shelf.take(place, each.num_bytes, again, end)
    return (Stay(0, last, is_last=True),)


def _again(each: Wanted, memory: Memory) -> int | None:
    """The point before which it is fetched for the next program, if its room is given to others until then."""
    begins_s, last = memory.begins_s, each.uses[-1]
    left_s = begins_s[-1] - begins_s[last + 1 : -1]
    takes_s = each.num_bytes / memory.bytes_per_s
    in_time = left_s[left_s >= takes_s]
    if not len(in_time):
        return None
    again = last + 1 + int(np.argmin(np.abs(in_time - PREFERRED_OVERLAP * takes_s)))
    there_s = float(begins_s[last] + begins_s[-1] - begins_s[again])
    return again if again > last + 1 and there_s < FREED * begins_s[-1] else None
