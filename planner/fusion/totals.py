"""Totals, as a loss is one: which are computed by the kernel that goes through the same array beside them."""

from __future__ import annotations

from ..graph import Graph
from .group import Group
from .nature import REDUCE, widens
from .uses import Uses

IMAGE_RANK = 4


def add_up_alike(graph: Graph, uses: Uses, value: int, one: Group, other: Group) -> bool:
    """Whether of two groups that go through a value neither adds it up to a single number, or both, or it may be done
    by one kernel: where both widen the value, or neither.

    A loss in float32 is a kernel of its own beside a gradient that is computed in bfloat16, of one array; what is only
    left in bfloat16 is computed with it (small programs for v4, v5e and v6e). Of images that loops make it is one of
    its own beside what is only left so, too (nets for v4, v5e, v5p and v6e).
    """
    totals = _totals(graph, one) | _totals(graph, other)
    maker = uses.makers.get(value)
    if totals and maker is not None and graph.ops[maker].kind == "while" and len(graph.shape(value)) == IMAGE_RANK:
        return totals <= _left(graph, one) & _left(graph, other)
    return not totals or _widens(graph, value, one) == _widens(graph, value, other)


def _totals(graph: Graph, group: Group) -> set[str]:
    """The dtypes of what a group adds up to a single number."""
    ops = [graph.ops[root] for root in group.roots]
    added = [op for op in ops if op.kind == REDUCE and graph.values[op.results[0]].num_elements == 1]
    return {graph.values[op.operands[0]].dtype for op in added}


def _left(graph: Graph, group: Group) -> set[str]:
    """The dtypes of what a group leaves, or adds up."""
    ops = [graph.ops[root] for root in group.roots]
    return {graph.values[(op.operands if op.kind == REDUCE else op.results)[0]].dtype for op in ops}


def _widens(graph: Graph, value: int, group: Group) -> bool:
    return any(value in graph.ops[number].operands and widens(graph, graph.ops[number]) for number in group.ops)
