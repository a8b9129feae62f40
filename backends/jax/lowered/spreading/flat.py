"""A module, read once, in which it is asked again and again how values come to lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .....planner.graph import Graph, Sharding
from ..reading import Reading
from ..rewrites.simplify import nested
from .applied import applied
from .constrained import Spot, constrained, opened, turns
from .entered import Entered, rooms
from .lying import Lying
from .network import Rules, is_known, network
from .template import WRITTEN, left_open, said_by
from .uses import Uses, changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Flat:
    """The ``graph`` of a module before it is laid out, its loops entered, with its ``uses``.

    ``made`` are the numbers of the values that each of the module's operations makes, in order, None of those that
    nothing reads; ``makers`` the places in the graph of what makes each value, ``turns`` of what a loop leaves where
    its turns end and begin, ``rooms`` has the loop of each operation. ``lying`` is over the module's mesh; ``written``
    are the constraints that stand in it.
    """

    graph: Graph
    uses: Uses
    made: tuple[tuple[int | None, ...], ...]
    makers: Mapping[int, int]
    turns: Mapping[int, tuple[Spot, Spot]]
    rooms: Sequence[int]
    written: tuple[Any, ...]
    rules: Rules
    lying: Lying

    @classmethod
    def read(cls, module: Any, reading: Reading, rules: Rules) -> Flat | None:
        """The same of a module that Shardy has split; None where it has operations that are not known."""
        entered = Entered.read(module, reading, {})
        if entered is None or not is_known(entered.graph):
            return None
        operations = [operation for operation, _ in nested(module)]
        return cls(
            graph=entered.graph,
            uses=entered.uses,
            made=tuple([tuple(map(entered.numbers.get, operation.results)) for operation in operations]),
            makers=entered.makers(),
            turns=turns(entered.graph),
            rooms=rooms(entered.graph),
            written=tuple([operation for operation in operations if operation.name == WRITTEN]),
            rules=rules,
            lying=Lying(mesh=reading.mesh, layouts=rules.layouts),
        )

    def lies(
        self, constraints: Sequence[tuple[Spot, Any]], arguments: Sequence[Any], results: Sequence[Any]
    ) -> list[Sharding]:
        """How each value comes to lie under ``constraints``, each with what it says, as arguments and results do:
        ``sdy.sharding`` attributes, None of what is left open.
        """
        lying = self.lying
        said = said_by(self.graph, self.written, lying)
        said |= {number: lying.number(each) for number, (_, each) in enumerate(constraints, len(self.graph.values))}
        graph, uses = constrained(self.graph, self.uses, [spot for spot, _ in constraints], self.rules)
        stated = [value for value, each in zip(graph.arguments, arguments, strict=True) if each is not None]
        first, (graph, uses) = len(graph.values), opened(graph, uses, stated, self.rules)
        said |= left_open(graph, first, lying)
        before, changing = applied(graph, uses, [*map(lying.number, arguments)], said, lying.layouts)
        found = network(*changed(graph, uses, changing), self.rules)
        layouts, _ = found.spread(before, [*map(lying.number, results)])
        ranks = [len(value.shape) for value in self.graph.values]
        return [lying.sharding(each) if each else ((),) * rank for each, rank in zip(layouts, ranks, strict=False)]
