"""Operations that nothing reads are left out."""

from __future__ import annotations

from dataclasses import replace

from ...graph import Graph, Op

KEPT = frozenset({"custom_call", "send", "recv", "outfeed", "infeed"})


def without_dead(graph: Graph) -> Graph:
    """The graph without operations whose results nothing reads, those with effects of their own aside."""
    live = set(graph.results)
    kept: list[Op] = []
    for op in reversed(graph.ops):
        results = op.results
        is_live = results[0] in live if len(results) == 1 else not live.isdisjoint(results)
        if is_live or op.kind in KEPT:
            kept.append(replace(op, bodies=tuple(map(without_dead, op.bodies))) if op.bodies else op)
            live.update(op.operands)
    if len(kept) == len(graph.ops) and not graph.nesting:
        return graph
    kept.reverse()
    return replace(graph, ops=tuple(kept))
