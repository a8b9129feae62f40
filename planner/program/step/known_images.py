"""Which values of a step are images, and which of them leave bits or are rounded for those, on whatever mesh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...fusion.masks import image_dims, is_mask_of_product
from ...fusion.narrow import NARROW, WIDE
from ...fusion.uses import read_uses
from ...graph import Graph, Value
from .seen import Seen, Shape, seen

Dims = tuple[int, ...]


@dataclass(slots=True, kw_only=True)
class KnownImages:
    """What is known of graphs' images, each worked out once. ``wide`` has the values of a step as it has them, by its
    program's graph.
    """

    wide: dict[int, tuple[Graph, tuple[Value, ...]]] = field(default_factory=dict)
    _seen: dict[int, tuple[Graph, Mapping[Shape, Seen]]] = field(default_factory=dict)
    _masks: dict[int, tuple[Graph, Mapping[int, Dims]]] = field(default_factory=dict)
    _masked: dict[int, tuple[Graph, Mapping[int, Dims]]] = field(default_factory=dict)

    def among(self, graph: Graph, numbers: Sequence[int]) -> dict[int, Seen]:
        """The images among these values of a graph, by their places."""
        if id(graph) not in self._seen:
            self._seen[id(graph)] = (graph, seen(graph))
        _, images = self._seen[id(graph)]
        shapes = ((place, graph.shape(number)) for place, number in enumerate(numbers)) if images else ()
        return {place: images[shape] for place, shape in shapes if shape in images}

    def masked(self, graph: Graph) -> Mapping[int, Dims]:
        """The images of a step that are rounded where bits are left of them, and read as they are where none are, with
        the dims that windows go along.
        """
        if id(graph) not in self._masked:
            _, values = self.wide.get(id(graph), (graph, ()))
            found: dict[int, Dims] = {}
            for number, along in self.masks_of(graph).items() if values else ():
                for value in graph.ops[number].operands:
                    if along and graph.values[value].dtype == NARROW and values[value].dtype == WIDE:
                        found.setdefault(value, along)
            self._masked[id(graph)] = (graph, found)
        return self._masked[id(graph)][1]

    def masks_of(self, graph: Graph) -> Mapping[int, Dims]:
        """The comparisons of products' results that one operation reads, and their dims if those are images: those of
        several are written once for all.
        """
        if id(graph) not in self._masks:
            uses = read_uses(graph)
            found = {
                number: image_dims(graph, uses, op)
                for number, op in enumerate(graph.ops)
                if is_mask_of_product(graph, uses, op) and len(uses.next_ops(op.results[0])) == 1
            }
            self._masks[id(graph)] = (graph, found)
        return self._masks[id(graph)][1]
