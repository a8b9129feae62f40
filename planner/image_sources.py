"""What images around convolutions that are cut are computed of number by number: arguments, or what lies whole."""

from __future__ import annotations

from collections.abc import Mapping

from .cut_images import along_last
from .fusion.nature import ELEMENTWISE
from .graph import Graph, Op
from .images import CONVOLUTION


def comes_back_whole(graph: Graph, gradient: Op, cut: Mapping[int, Op]) -> bool:
    """Whether what comes back to the gradient of a kernel is computed, number by number, of what a convolution made
    that is not cut: one with gaps between which margins do not fit. Where windows move on by several it is cut again.
    """
    if along_last(gradient.attributes, "rhs_dilation") > 1:
        return False
    makers = {result: op for op in graph.ops for result in op.results}
    waiting, seen = [gradient.operands[1]], set[int]()
    while waiting:
        value = waiting.pop()
        op = makers.get(value)
        if op is None or value in seen:
            continue
        seen.add(value)
        if op.kind == CONVOLUTION:
            if value not in cut:
                return True
        elif op.kind in ELEMENTWISE:
            alike = [v for v in op.operands if graph.shape(v) == graph.shape(value)]
            waiting += [v for v in alike if graph.values[v].dtype != "pred"]
    return False


def of_arguments(graph: Graph) -> set[int]:
    """The arguments of a graph, and what is made of them alone number by number."""
    found = set(graph.arguments)
    for op in graph.ops:
        if op.kind in ELEMENTWISE:
            shape = graph.shape(op.results[0])
            alike = [value for value in op.operands if graph.shape(value) == shape]
            if alike and found.issuperset(alike):
                found.update(op.results)
    return found
