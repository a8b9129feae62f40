"""A slice of what is converted is converted: so XLA takes slices of products' results in the product itself."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, Op

CONVERT, SLICE = "convert", "slice"


def with_slices_first(graph: Graph) -> Graph:
    """The same graph with the conversions that a slice alone reads behind it."""
    if not graph.kinds >= {CONVERT, SLICE}:
        return graph
    readers = graph.reads()
    readers.update(graph.results)
    converted = {
        op.results[0]: op for op in graph.of_kind(CONVERT) if readers[op.results[0]] == 1 and not op.attributes
    }
    behind = {op.operands[0]: op for op in graph.of_kind(SLICE) if op.operands[0] in converted}
    if not behind:
        return graph
    values, ops = list(graph.values), list[Op]()
    for op in graph.ops:
        if op.kind == CONVERT and op.results[0] in behind:
            continue
        if op.kind == SLICE and op.operands[0] in behind:
            wide = converted[op.operands[0]]
            values.append(replace(values[op.results[0]], dtype=values[wide.operands[0]].dtype))
            ops.append(op.moved(wide.operands, (len(values) - 1,)))
            ops.append(replace(wide, operands=(len(values) - 1,), results=op.results))
            continue
        ops.append(op)
    return replace(graph, values=tuple(values), ops=tuple(ops))
