"""Comparisons with what products make: which kernel writes the bits, and which takes nothing for them."""

from __future__ import annotations

from collections import Counter

from ..graph import Graph
from ..images import CONVOLUTION
from ..kernels import Kernel

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
