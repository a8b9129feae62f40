"""Numbers that only the matrix unit reads are stored as it reads them: in bfloat16."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, Op
from ..kinds import TURNED_COPY
from .nature import PRODUCTS, VIEWS, joins_lanes
from .uses import Uses

_MOVES = {"slice", "pad", "concatenate", "dynamic_slice", "reverse", "copy", TURNED_COPY}
KEEPING = VIEWS | {"select", "maximum", "minimum"} | _MOVES
WIDE, NARROW = "f32", "bf16"


def narrow(graph: Graph, uses: Uses, masks: frozenset[int]) -> Graph:
    """The graph with the values in bfloat16 whose every reader rounds them to it: products at the default precision,
    and what merely picks and moves numbers for those. A batch of products that join two dims of an operand into one
    write them apart again, and no narrower.
    """
    narrowed, apart = set[int](), _written_apart(graph)
    for number in range(len(graph.ops) - 1, -1, -1):
        for value in graph.ops[number].results:
            wide = graph.values[value].dtype == WIDE and value not in apart
            if wide and _is_rounded(graph, uses, value, narrowed, masks):
                narrowed.add(value)
    if not narrowed:
        return graph
    values = (replace(v, dtype=NARROW) if n in narrowed else v for n, v in enumerate(graph.values))
    return replace(graph, values=tuple(values))


def _written_apart(graph: Graph) -> set[int]:
    """What batches of products make that join two dims, under any shape."""
    found = set[int]()
    for op in graph.ops:
        batched = op.kind == "dot_general" and op.attributes.get("lhs_batching_dimensions")
        joins = batched and any(joins_lanes(graph, op, side) for side in (0, 1))
        if joins or (op.kind in VIEWS and not found.isdisjoint(op.operands)):
            found.update(op.results)
    return found


def _is_rounded(graph: Graph, uses: Uses, value: int, narrowed: set[int], masks: frozenset[int]) -> bool:
    if value in uses.results or not uses.readers[value]:
        return False
    return all(reader in masks or _rounds(graph, graph.ops[reader], narrowed) for reader in uses.next_ops(value))


def _rounds(graph: Graph, reader: Op, narrowed: set[int]) -> bool:
    if reader.kind in PRODUCTS:
        return is_default_precision(reader)
    if reader.kind == "convert":
        return graph.values[reader.results[0]].dtype == NARROW
    if reader.kind not in KEEPING:
        return False
    (made,) = reader.results
    return made in narrowed or graph.values[made].dtype == NARROW


def is_default_precision(op: Op) -> bool:
    """Whether a product rounds its operands to bfloat16: nothing more precise is asked of it."""
    said = op.attributes.get("precision_config") or op.attributes.get("precision") or ()
    words = (said,) if isinstance(said, str) else tuple(said)
    return all(str(word).rsplit(".", 1)[-1].upper() in ("DEFAULT", "") for word in words)
