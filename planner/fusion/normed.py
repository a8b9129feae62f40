"""Few images in parts (``cut_images``) that are convolved after a norm: they are written first.

Parts are put beside each other's edges for a convolution of several places, which computes nothing on the way. What a
kernel makes of an image it hands on so, beside neighbours' rows too; what waits for sums over all of an image, as norms
do, is a kernel of its own (v4, v5e, v5p and v6e).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ..graph import Graph, Op
from ..images import is_of_one_place, own_rows
from .nature import BROADCAST, CONVERT, ELEMENTWISE, NORMED, NORMED_BY_ALL, NORMED_BY_EACH, REDUCE, VIEWS


def with_norms_written(graph: Graph, cut: Mapping[int, Op]) -> Graph:
    """The graph with what is normed for convolutions that are ``cut`` said to be written."""
    makers = {value: op for op in graph.ops for value in op.results}
    read = {own_rows(graph, op, makers) for op in cut.values() if not is_of_one_place(graph, op)}
    found = {value: how for value in read if value in makers and (how := _normed(graph, makers, value))}
    if not found:
        return graph
    for value, how in [*found.items()]:
        rounded = _rounded(graph, makers, value) if how == NORMED_BY_EACH else None
        found |= {rounded: how} if rounded is not None else {}
    ops = [_said(op, found[op.results[0]]) if op.results and op.results[0] in found else op for op in graph.ops]
    return replace(graph, ops=tuple(ops))


def _said(op: Op, how: str) -> Op:
    return replace(op, attributes={**op.attributes, NORMED: how})


def _normed(graph: Graph, makers: Mapping[int, Op], value: int) -> str | None:
    """With which sums a value is computed number by number, if it is with what was reduced of as many numbers."""
    size, waiting, seen = graph.values[value].num_elements, [value], {value}
    while waiting:
        op = makers.get(waiting.pop())
        if op is None or op.kind not in ELEMENTWISE | VIEWS | {BROADCAST}:
            continue
        if op.kind == BROADCAST and _is_reduced(graph, makers, op.operands[0], size):
            return NORMED_BY_EACH if _batch(graph, op) > 1 else NORMED_BY_ALL
        new = [v for v in op.operands if v not in seen and graph.values[v].num_elements == size]
        seen.update(new)
        waiting += new
    return None


def _rounded(graph: Graph, makers: Mapping[int, Op], value: int) -> int | None:
    """What is rounded of a norm before it is computed further, as an activation."""
    size = graph.values[value].num_elements
    while value in makers and makers[value].kind in ELEMENTWISE:
        op = makers[value]
        if op.kind == CONVERT and graph.values[value].bits < graph.values[op.operands[0]].bits:
            return value
        value = next(v for v in op.operands if graph.values[v].num_elements == size)
    return None


def _batch(graph: Graph, spread: Op) -> int:
    """Over how many images numbers differ that are spread over them."""
    shape, dims = graph.shape(spread.operands[0]), spread.attributes.get("broadcast_dimensions", ())
    return next((size for dim, size in zip(dims, shape, strict=True) if dim == 0), 1)


def _is_reduced(graph: Graph, makers: Mapping[int, Op], value: int, size: int) -> bool:
    """Whether a value comes from a sum of so many numbers, by way of smaller ones."""
    waiting, seen = [value], {value}
    while waiting:
        op = makers.get(waiting.pop())
        if op is None:
            continue
        if op.kind == REDUCE and graph.values[op.operands[0]].num_elements >= size:
            return True
        new = [v for v in op.operands if v not in seen and graph.values[v].num_elements < size]
        seen.update(new)
        waiting += new
    return False
