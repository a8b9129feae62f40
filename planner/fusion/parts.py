"""What operations compute number by number and others read only a part of: it is written for these."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from ..graph import Graph, Op
from .nature import ELEMENTWISE, PRODUCTS, REDUCE, SLICE, SPREAD, VIEWS, widens
from .uses import Uses

SLICES = frozenset({"slice", SLICE})
ANEW = PRODUCTS | ELEMENTWISE | VIEWS | {REDUCE}
FLOATS = frozenset({"f32", "bf16", "f16"})

Parts = Mapping[int, frozenset[int]]
"""By the number of an operation those that read a part of its result."""
NO_PARTS: Parts = MappingProxyType({})


def parts(graph: Graph, uses: Uses) -> Parts:
    """The elementwise operations that several read of which some take a slice, or compute what is then sliced.

    The compiler computes a value again for each that reads it, but not for a slice of it: it writes that, rounded if
    all slices of it are for products. A value that a slice alone reads is computed with that.
    """
    if SLICES.isdisjoint(graph.kinds):
        return {}
    taking = _taking(graph, uses)
    found: dict[int, frozenset[int]] = {}
    for number, op in enumerate(graph.ops):
        if op.kind in ELEMENTWISE and graph.values[op.results[0]].dtype in FLOATS and not widens(graph, op):
            cut = taking.intersection(uses.next_ops(op.results[0]))
            if cut and _beyond_views(graph, uses, op.results[0]) > 1 and _arrays(graph, uses, op):
                found[number] = frozenset(cut)
    return found


def _taking(graph: Graph, uses: Uses) -> set[int]:
    """The operations that take parts, and what is computed number by number for these alone."""
    found = set[int]()
    for number in range(len(graph.ops) - 1, -1, -1):
        op = graph.ops[number]
        if op.kind in SLICES:
            if graph.values[op.results[0]].num_elements < graph.values[op.operands[0]].num_elements:
                found.add(number)
        elif op.kind in VIEWS or op.kind in ELEMENTWISE:
            after = uses.next_ops(op.results[0])
            if (len(after) == 1 or op.kind in VIEWS) and not found.isdisjoint(after):
                found.add(number)
    return found


def _beyond_views(graph: Graph, uses: Uses, value: int) -> int:
    """How many read a value, under whatever shape."""
    after = uses.next_ops(value)
    return sum(_beyond_views(graph, uses, graph.ops[n].results[0]) if graph.ops[n].kind in VIEWS else 1 for n in after)


def _arrays(graph: Graph, uses: Uses, op: Op) -> int:
    """How many operands are not only spread out."""
    makers = [uses.makers.get(value) for value in dict.fromkeys(op.operands)]
    return sum(maker is None or graph.ops[maker].kind not in SPREAD for maker in makers)


def is_of_one(graph: Graph, uses: Uses, op: Op) -> bool:
    """Whether it reads one array, beside what is spread out."""
    return _arrays(graph, uses, op) == 1


def is_computed_anew(graph: Graph, reader: int, maker: int, found: Parts) -> bool:
    """Whether what reads a value that lies there for its parts computes it again all the same."""
    return maker in found and reader not in found[maker] and graph.ops[reader].kind in ANEW
