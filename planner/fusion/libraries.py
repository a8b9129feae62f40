"""What differs where a compiler calls libraries for products, as XLA does on GPUs: they read and write whole arrays.

What a product reads is written before, and of what follows it only a conversion is done with it. All else is fused much
as the TPU compiler fuses it, but that what is spread or looked up may be computed in passing, and that rows which fit
into a processor are passed once, however often they are reduced and read again (softmax, norms).
"""

from __future__ import annotations

import math

from ..graph import Graph, Op
from ..lookups import GATHER
from .group import Group
from .nature import BROADCAST, CONSTANT, ELEMENTWISE, PRODUCTS, REDUCE, VIEWS
from .uses import Uses

ROW_ELEMENTS = 2**14
"""How long a row may be that is passed once: 1024 numbers were, 32768 were not, seen with jaxlib 0.11.2 on an H200."""


def multiplied(graph: Graph, uses: Uses) -> set[int]:
    """The operations that make what products read, whatever views lie between."""
    found = set[int]()
    waiting = [value for op in graph.ops if op.kind in PRODUCTS for value in op.operands]
    while waiting:
        number = uses.makers.get(waiting.pop())
        if number is None or number in found or graph.ops[number].kind == CONSTANT:
            continue
        if graph.ops[number].kind in VIEWS:
            waiting += graph.ops[number].operands
        else:
            found.add(number)
    return found


def is_passed(op: Op, reader: Op) -> bool:
    """Whether a reader spreads, or looks up, what is computed number by number."""
    if reader.kind == GATHER:
        return op.kind in ELEMENTWISE | VIEWS | {"slice"} and reader.operands[0] in op.results
    return reader.kind == BROADCAST and op.kind in ELEMENTWISE


def ends_product(op: Op) -> bool:
    """Whether an operation is done as a product is written."""
    return op.kind == "convert" or op.kind in VIEWS


def closed(group: Group) -> Group:
    """A group that nothing joins if it has a product."""
    group.open = group.open and not group.products
    return group


def is_row(graph: Graph, op: Op) -> bool:
    """Whether it reduces rows, numbers that lie side by side, which fit into a processor."""
    if op.kind != REDUCE:
        return False
    shape, dims = graph.shape(op.operands[0]), sorted(op.attributes.get("dimensions", ()))
    last = list(range(len(shape) - len(dims), len(shape)))
    return bool(dims) and dims == last and math.prod(shape[dim] for dim in dims) <= ROW_ELEMENTS
