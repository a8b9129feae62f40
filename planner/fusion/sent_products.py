"""What is computed of a product that comes from other devices, for one other product alone: written before that.

A barrier stands there (``backends/jax/products``), which is set where the product is not yet split over devices. Where
nothing is sent between the product and what is computed of it, that is written as the product's own kernel anyway.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..graph import Graph
from ..kinds import KINDS, TURNED_COPY
from .nature import ELEMENTWISE, PRODUCTS, STEPWISE, VIEWS
from .operands import beyond_views
from .uses import Uses

_HANDING = frozenset({*KINDS, *VIEWS, TURNED_COPY})


def sent_products(graph: Graph, uses: Uses) -> Iterator[int]:
    """The numbers of the elementwise operations that a barrier ends."""
    if graph.kinds.isdisjoint(KINDS):
        return
    for number, op in enumerate(graph.ops):
        if op.kind in ELEMENTWISE and _is_for_one_product(graph, uses, op.results[0]):
            alike = [value for value in op.operands if _is_alike(graph, value, op.results[0])]
            if any(_is_sent_product(graph, uses, value) for value in alike):
                yield number


def _is_for_one_product(graph: Graph, uses: Uses, value: int) -> bool:
    readers = [] if value in uses.results else beyond_views(graph, uses, value)
    return len(readers) == 1 and readers[0][0].kind in PRODUCTS


def _is_alike(graph: Graph, value: int, made: int) -> bool:
    return graph.values[value].num_elements == graph.values[made].num_elements


def _is_sent_product(graph: Graph, uses: Uses, value: int) -> bool:
    """Whether a value that one operation alone reads is made of a product, element by element, and sent on the way."""
    is_sent = False
    while len(uses.after[value]) == 1 and value not in uses.results and value in uses.makers:
        op = graph.ops[uses.makers[value]]
        if op.kind in PRODUCTS:
            return is_sent
        is_sent |= op.kind in KINDS
        if op.kind in _HANDING:
            value = op.operands[0]
        elif op.kind in STEPWISE:
            alike = [
                v for v in op.operands if _is_alike(graph, v, value) and v in uses.makers and len(uses.after[v]) == 1
            ]
            if len(alike) != 1:
                return False
            value = alike[0]
        else:
            return False
    return False
