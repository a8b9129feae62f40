"""How pinned values are laid out: made in any layout, then brought into the one that is pinned, once for all."""

from __future__ import annotations

from collections.abc import Mapping

from ..graph import Graph, Sharding
from .reading import value_node
from .wires import Level, Node, Wiring


def pinned(graph: Graph, pins: Mapping[str, Sharding]) -> dict[int, Sharding]:
    """The layouts that are pinned, by path, of what the operations of a graph make."""
    named = (each for op in graph.ops for each in op.named) if pins else ()
    return {made: pins[path] for made, path in named if path in pins}


def lay_out_pinned(wiring: Wiring, level: Level) -> None:
    """Nodes for what is pinned, between who makes it and who reads it; what those compute in passing is pinned where it
    is read (``reading``).
    """
    for value, layout in level.pinned.items():
        made = level.source.get(value)
        if made is None:
            continue
        level.made[value] = made
        maker = wiring.nodes[made.node]
        if not _is_left_inside(maker):
            level.source[value] = value_node(wiring, level, value, [layout], maker.repeats)
            wiring.edge(made, level.source[value], level.graph.values[value], maker.times)
            wiring.spare(made, level.source[value], value)


def _is_left_inside(maker: Node) -> bool:
    return maker.in_passing or maker.ended is not None
