"""Sorts, and the largest of a dim: how the TPU compiler wants what they read, and what it sorts beside."""

from __future__ import annotations

import math

from .graph import Graph, Op, Value

SORT, TOP_K = "sort", "top_k"
RANKS = frozenset({SORT, TOP_K})
PLACES = "s32"
SHARE_RANKED, MOST_RANKED = 64, 256
"""The ``k`` largest of a matrix's rows are ranked in one operation where rows are more than so many times ``k`` long
and ``k`` is no more than so much, or one (bisected for v5e: 4 of 384 and 33 of 4096 are, 4 of 256 and 64 of 4096 are
sorted; 129 of 65536 are, 512 are not); numbers of float16 are sorted.
"""


def is_ranked(op: Op, value: Value) -> bool:
    """Whether the largest of a value are ranked in one operation, and so not sorted."""
    k = int(op.attributes.get("k", value.shape[-1]))
    few = k == 1 or (k <= MOST_RANKED and k * SHARE_RANKED < value.shape[-1])
    return few and len(value.shape) == 2 and value.dtype != "f16"


def turned(graph: Graph, op: Op) -> bool:
    """Whether what is sorted is copied so that the sorted dim is not on the lanes, as the last one of several is."""
    shape = graph.shape(op.operands[0])
    last = len(shape) - 1
    along = int(op.attributes.get("dimension", -1)) if op.kind == SORT else last
    return along == last and math.prod(shape[:-1]) > 1 and shape[-1] > 1


def placed_beside(graph: Graph, op: Op) -> Value | None:
    """The places that are sorted beside numbers of which equal ones keep their order, if no operand has them."""
    first = graph.values[op.operands[0]]
    if first.num_elements <= 1 or (op.kind == SORT and not op.attributes.get("is_stable")):
        return None
    made = {value for each in graph.of_kind("iota") for value in each.results}
    return (
        None if any(v in made and graph.values[v].dtype == PLACES for v in op.operands) else Value(first.shape, PLACES)
    )
