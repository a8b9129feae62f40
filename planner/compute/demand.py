"""How much of each value a kernel really goes through: of an array from which it cuts a piece, only the piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..fusion.nature import BROADCAST, ELEMENTWISE, MULTIPLYING, REDUCE, UPDATE
from ..graph import Graph, Op

WHOLE = MULTIPLYING | {REDUCE, "sort", "top_k", "fft", "cholesky", "triangular_solve", "custom_call"}
CUTS = frozenset({"slice", "dynamic_slice", "gather"})


def demanded(graph: Graph, ops: Sequence[Op], writes: Sequence[int]) -> dict[int, int]:
    """Elements of each value that a kernel computes or reads; its operations are in the order of the program."""
    values = graph.values
    need = {value: values[value].num_elements for value in writes}
    for op in reversed(ops):
        results = op.results
        made = need.get(results[0], 0) if len(results) == 1 else needed_of(op, need)
        if op.kind in ELEMENTWISE:
            for value in op.operands:
                size, here = values[value].num_elements, need.get(value, 0) + made
                need[value] = here if here < size else size
            continue
        for position, value in enumerate(op.operands):
            size = values[value].num_elements
            here = need.get(value, 0) + _passed_on(graph, op, position, made, size)
            need[value] = here if here < size else size
    return need


def needed_of(op: Op, need: Mapping[int, int]) -> int:
    """Elements of an operation's result, the most of several, that are needed."""
    if len(op.results) == 1:
        return need.get(op.results[0], 0)
    return max((need.get(value, 0) for value in op.results), default=0)


def _passed_on(graph: Graph, op: Op, position: int, made: int, size: int) -> int:
    """What making so many elements of the result takes of an operand of this size."""
    if op.kind in WHOLE:
        return size
    if op.kind == UPDATE:
        return size if position else 0
    if op.kind == BROADCAST:
        return -(-made * size // max(graph.values[op.results[0]].num_elements, 1))
    return 1 if op.kind in CUTS and position else made
