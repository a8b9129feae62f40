"""What is broadcast and then gathered is gathered first, or not at all.

``all_gather(broadcast(x))`` is ``broadcast(all_gather(x))``, and ``broadcast(x)`` where the dim that is gathered is one
of those that were added (XLA's AllGatherBroadcastReorder): the gradient of a mean over tokens or places, say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ...graph import Graph, Op, Value
from ...kinds import ALL_GATHER

BROADCAST = "broadcast_in_dim"


def gather_before_broadcasts(graph: Graph) -> Graph:
    """The graph with gathers of broadcasts before these, in loops too."""
    if graph.nesting:
        ops = (
            replace(op, bodies=tuple(map(gather_before_broadcasts, op.bodies))) if op.bodies else op for op in graph.ops
        )
        graph = replace(graph, ops=tuple(ops))
    if ALL_GATHER not in graph.kinds:
        return graph
    broadcasts = {op.results[0]: op for op in graph.ops if op.kind == BROADCAST}
    if not any(op.kind == ALL_GATHER and op.operands[0] in broadcasts for op in graph.ops):
        return graph
    values, found = list(graph.values), list[Op]()
    for op in graph.ops:
        broadcast = broadcasts.get(op.operands[0]) if op.kind == ALL_GATHER else None
        found += _turned(op, broadcast, values) if broadcast is not None else [op]
    return replace(graph, values=tuple(values), ops=tuple(found))


def _turned(gather: Op, broadcast: Op, values: list[Value]) -> Iterator[Op]:
    """The gather of a broadcast as a broadcast of what is gathered, if that can be said."""
    dims = list(broadcast.attributes["broadcast_dimensions"])
    gathered, whole = set(gather.attributes["dimensions"]), values[gather.results[0]]
    (read,) = broadcast.operands
    own = values[read]
    lies = [d for d in dims if d in gathered]
    if not lies:
        yield replace(broadcast, results=gather.results)
        return
    if set(lies) != gathered:
        yield gather
        return
    shape = tuple(whole.shape[d] if d in gathered else size for d, size in zip(dims, own.shape, strict=True))
    values.append(Value(shape, own.dtype))
    at = tuple(dims.index(d) for d in gather.attributes["dimensions"])
    yield replace(
        gather,
        operands=(read,),
        results=(len(values) - 1,),
        attributes={**gather.attributes, "dimensions": at},
    )
    yield replace(broadcast, operands=(len(values) - 1,), results=gather.results)
