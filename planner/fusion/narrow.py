"""Numbers that only the matrix unit reads are stored as it reads them: in bfloat16."""

from __future__ import annotations

from dataclasses import replace

from ..graph import Graph, Op
from ..kinds import TURNED_COPY
from .nature import PRODUCTS, VIEWS
from .uses import Uses

_MOVES = {"slice", "pad", "concatenate", "dynamic_slice", "reverse", "copy", TURNED_COPY}
KEEPING = VIEWS | {"select", "maximum", "minimum"} | _MOVES
WIDE, NARROW = "f32", "bf16"


def narrow(graph: Graph, uses: Uses, masks: frozenset[int]) -> Graph:
    """The graph with the values in bfloat16 whose every reader rounds them to it: products at the default precision,
    and what merely picks and moves numbers for those.
    """
    narrowed = set[int]()
    for number in range(len(graph.ops) - 1, -1, -1):
        for value in graph.ops[number].results:
            if graph.values[value].dtype == WIDE and _is_rounded(graph, uses, value, narrowed, masks):
                narrowed.add(value)
    if not narrowed:
        return graph
    values = (replace(v, dtype=NARROW) if n in narrowed else v for n, v in enumerate(graph.values))
    return replace(graph, values=tuple(values))


def _is_rounded(graph: Graph, uses: Uses, value: int, narrowed: set[int], masks: frozenset[int]) -> bool:
    if value in uses.results or not uses.readers[value]:
        return False
    return all(reader in masks or _rounds(graph, graph.ops[reader], narrowed) for reader in uses.next_ops(value))


def _rounds(graph: Graph, reader: Op, narrowed: set[int]) -> bool:
    if reader.kind in PRODUCTS:
        return is_default_precision(reader)
    if reader.kind == "convert":
        return graph.values[reader.results[0]].dtype == NARROW
    return reader.kind in KEEPING and reader.results[0] in narrowed


def is_default_precision(op: Op) -> bool:
    """Whether a product rounds its operands to bfloat16: nothing more precise is asked of it."""
    said = op.attributes.get("precision_config") or op.attributes.get("precision") or ()
    words = (said,) if isinstance(said, str) else tuple(said)
    return all(str(word).rsplit(".", 1)[-1].upper() in ("DEFAULT", "") for word in words)
