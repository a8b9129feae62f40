"""Devices' parts of images that are a step's argument: cut out as the argument lies, and laid out for windows later."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ...fusion.nature import CONVERT, SLICE
from ...graph import Graph
from ...images import tile_rows
from ...kernels import Kernel
from ..work import LANES, WORD_BYTES, Work, round_up

Shape = tuple[int, ...]


class GivenParts:
    """The parts of the images that are ``given``, with the elements that each fills, as they are found."""

    def __init__(self, graph: Graph, given: Collection[int]) -> None:
        self._graph, self._given = graph, frozenset(given)
        self.laid: dict[int, int] = {}

    def counted(self, kernel: Kernel, work: Work) -> Work | None:
        """The work of a kernel that cuts such parts, of which it takes notice; none of another kernel."""
        ops = [self._graph.ops[number] for number in kernel.ops]
        arrays = [value for value in kernel.reads if self._graph.values[value].num_elements > 1]
        if {SLICE} != {op.kind for op in ops} - {CONVERT} or len(arrays) != 1 or not self._given.issuperset(arrays):
            return None
        (read,) = arrays
        whole, parts = self._graph.values[read], [self._graph.values[made] for made in kernel.writes]
        laid = [laid_as(whole.shape, part.shape) for part in parts]
        self.laid |= zip(kernel.writes, laid, strict=True)
        cut = sum(laid_as(whole.shape, self._graph.shape(op.results[0])) for op in ops if op.kind == SLICE)
        reads = tuple(cut * whole.bits // 8 if value == read else 0 for value in kernel.reads)
        writes = tuple(each * part.bits // 8 for each, part in zip(laid, parts, strict=True))
        spilled = sum(each for each, part in zip(laid, parts, strict=True) if part.bits < 8 * WORD_BYTES)
        spill_bytes, space_bytes = spilled * WORD_BYTES, cut * WORD_BYTES
        return replace(work, reads=reads, writes=writes, spill_bytes=spill_bytes, space_bytes=space_bytes)


def laid_as(whole: Shape, part: Shape) -> int:
    """The elements that a part fills, as an argument lies: with the last of its dims on the lanes, or the one before,
    where that pads the whole less.
    """
    return _filled(part, turned=_filled(whole, turned=True) < _filled(whole, turned=False))


def _filled(shape: Shape, *, turned: bool) -> int:
    *outside, rows, lanes = (1, 1, *shape)
    if turned:
        rows, lanes = lanes, rows
    count = round_up(lanes, LANES) * round_up(rows, tile_rows(rows, 1))
    for size in outside:
        count *= size
    return count
