"""Comparisons with what products make: which kernel writes the bits, and which takes nothing for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from ..graph import Graph
from ..images import CONVOLUTION
from ..kernels import Kernel
from .work import FREE, PRODUCT, WORD_BYTES, Work

COMPARE = "compare"


def packed_apart(graph: Graph, kernel: Kernel) -> set[int]:
    """What a convolution's kernel writes and makes no bits of itself, as other products do: its numbers and what of
    them is above zero, where it writes both. A kernel of its own makes the bits, another one a mask again (seen on v3).
    """
    if all(graph.ops[number].kind != CONVOLUTION for number in kernel.ops):
        return set()
    often = Counter(graph.shape(value) for value in kernel.writes)
    return {value for value in kernel.writes if often[graph.shape(value)] > 1}


def given_arrays(graph: Graph) -> set[int]:
    """The arguments that are more than one number."""
    return {value for value in graph.arguments if graph.values[value].num_elements > 1}


def compares(graph: Graph, kernel: Kernel) -> bool:
    """Whether a kernel only compares one array's numbers: the compiler does that of a product's as it makes them."""
    arrays = [size for value in kernel.reads if (size := graph.values[value].num_elements) > 1]
    return len(kernel.writes) == 1 and arrays == [graph.values[kernel.writes[0]].num_elements]


class Masks:
    """Which kernels of a program make what is above zero of products, or leave that to others. Of kernels ``apart`` all
    arguments are what products make, but for what is ``bare``; ``packed`` is what kernels of their own make bits of.
    """

    def __init__(self, graph: Graph, packed: Collection[int], bare: Collection[int], *, is_apart: bool) -> None:
        self._graph, self._twice = graph, set(packed)
        self._made = given_arrays(graph) - self._twice - set(bare) if is_apart else set[int]()

    def done(self, kernel: Kernel, work: Work) -> tuple[Work, Work | None]:
        """The work of a kernel as it is done, and what it takes besides; a mask is what products leave beside."""
        if work.kind == PRODUCT:
            twice = packed_apart(self._graph, kernel)
            self._made.update({*kernel.writes} - twice)
            self._twice |= twice
        elif self._graph.ops[kernel.ops[-1]].kind == COMPARE and compares(self._graph, kernel):
            if not self._made.isdisjoint(kernel.reads):
                return Work(kind=FREE), None
            if not self._twice.isdisjoint(kernel.reads):
                return work, Work(kind=work.kind, writes=work.writes, spill_bytes=WORD_BYTES * sum(work.writes))
        return work, None
