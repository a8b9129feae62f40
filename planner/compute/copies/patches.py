"""Pictures cut into patches: a reshape parts rows and columns, a transpose moves the parts, another reshape joins them.

No layout has the picture and its patches: what JAX writes as two reshapes and a transpose is copied, for all that read
it. The largest dim lies on the lanes meanwhile: the batch, in three copies (one to have it there, one that moves dims,
one to have each patch on the lanes, but where the batch fills these), or a part of each row, in one. Counted in steps
compiled for v3, v4, v5e, v5p and v6e: pictures of 224 by 224 in patches of 16 take up to 0.24 cycles a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from ...fusion.nature import CONVERT, LANES
from ...graph import Graph, Op
from ...kernels import Kernel
from ..coefficients import Coefficients
from ..manner import FIRST, LATER, PAIRED, SECOND, Manner, manner_of
from ..work import REGISTER_ELEMENTS, SUBLANES, padded_elements, round_up
from .turned import GRADIENT

RESHAPE, TRANSPOSE = "reshape", "transpose"
PARTED = 2
Shape = tuple[int, ...]


class Copies(NamedTuple):
    """Cycles for each register of what is copied: to have the batch on the lanes, to move other dims, to have patches
    there; and of a copy that has parts of rows on the lanes.
    """

    turned: float
    moved: float
    returned: float
    alone: float


COPIES: Mapping[Manner, Copies] = MappingProxyType(
    {
        FIRST: Copies(14.0, 17.0, 15.5, 21.5),
        SECOND: Copies(13.0, 19.0, 10.0, 12.3),
        LATER: Copies(7.5, 23.0, 0.2, 0.3),
        PAIRED: Copies(7.0, 7.0, 8.5, 12.9),
    }
)


class Patches:
    """The pictures of a program that are cut into patches, as its kernels are gone through.

    Where the program is a part of a step (``apart``), what gradients read has been copied for others.
    """

    def __init__(self, graph: Graph, of: Coefficients, *, apart: bool = False) -> None:
        self._graph, self._of, self._apart = graph, of, apart
        self._makers = {value: op for op in graph.ops for value in op.results}
        joined = {op.operands[0] for op in graph.of_kind(RESHAPE)}
        self._cut = {
            op.results[0]: op for op in graph.of_kind(TRANSPOSE) if op.results[0] in joined and self._is_of_patches(op)
        }

    def copies_cycles(self, kernel: Kernel) -> float:
        """What the copies take that a kernel is the first to need."""
        if not self._cut:
            return 0.0
        ops = [self._graph.ops[number] for number in kernel.ops]
        found = [op.results[0] for op in ops if op.results and op.results[0] in self._cut]
        if self._apart and any(GRADIENT in (op.origin.scope or "") for op in ops):
            return 0.0
        return sum(sum(self._copied(self._cut.pop(value))) for value in found)

    def _is_of_patches(self, op: Op) -> bool:
        """Whether a transpose is of rows and columns that a reshape parted, whose parts are put beside each other."""
        parting = self._makers.get(op.operands[0])
        if parting is None or parting.kind != RESHAPE:
            return False
        whole, parts = (self._graph.shape(v) for v in (parting.operands[0], op.operands[0]))
        return len(_parted(whole, parts)) >= PARTED and tuple(op.attributes["permutation"]) != tuple(range(len(parts)))

    def _copied(self, op: Op) -> Iterator[float]:
        """Cycles of each copy: lanes filled up with what lies on them, rows with what is largest of the others."""
        parts, each = self._graph.shape(op.operands[0]), COPIES[manner_of(self._of)]
        largest = max(parts)
        *_, features = parts
        if largest == features or (largest >= LANES and parts[0] < largest):
            return
        registers = _laid(parts, largest) / REGISTER_ELEMENTS
        if parts[0] < largest:
            yield each.alone * registers
            return
        if self._lies_otherwise(op, parts[0]):
            yield each.turned * registers
        yield each.moved * registers
        if largest < LANES:
            yield each.returned * registers

    def _lies_otherwise(self, op: Op, batch: int) -> bool:
        """Whether an argument has less padding with another dim than the batch on the lanes."""
        value = self._makers[op.operands[0]].operands[0]
        while value in self._makers and self._makers[value].kind == CONVERT:
            (value,) = self._makers[value].operands
        whole = self._graph.shape(value)
        return value in self._graph.arguments and padded_elements(whole) < _laid(whole, batch)


def _parted(whole: Shape, parts: Shape) -> list[int]:
    """The dims of a whole that a reshape parts into two of more than one place each."""
    found, rest = [], list(reversed(parts))
    for dim, size in enumerate(whole):
        here = list[int]()
        while rest and math.prod(here) * rest[-1] <= size and math.prod(here) < size:
            here.append(rest.pop())
        if math.prod(here) != size:
            return []
        if sum(part > 1 for part in here) > 1:
            found.append(dim)
    return found


def _laid(shape: Shape, lanes: int) -> int:
    """The elements of a shape with a dim of this size on the lanes and the largest of the others on rows, filled up."""
    others = sorted(shape, reverse=True)
    others.remove(lanes)
    rows = others[0]
    return math.prod(shape) // (lanes * rows) * round_up(lanes, LANES) * round_up(rows, SUBLANES)
