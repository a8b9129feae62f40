"""A prepared module read once, from which the graph of each plan is made as Shardy's passes would leave it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from .....planner.graph import Graph
from ..attributes import FORM, value_of
from ..loops import CONSTANTS
from ..passes import Passes
from ..reading import Reading
from ..rewrites.simplify import NESTING, nested
from .applied import applied
from .constrained import Spot, constrained, opened
from .entered import Entered
from .lying import Lying
from .network import CONSTRAINT, Rules, is_known, network
from .rounds import Network
from .rule import Layout
from .uses import Changing, Uses, changed
from .writer import Writer

SHARDING = "sharding"
BROADCAST, WRITTEN = "stablehlo.broadcast_in_dim", "sdy.sharding_constraint"
CLEANING = (
    "func.func(sdy-constant-or-scalar-merger)",
    ("canonicalize{region-simplify=aggressive top-down=false enable-patterns=sdy-collective}"),
)
"""What of Shardy's passes may change operations for other reasons than how they lie, one after the other."""


class Said(NamedTuple):
    """What says what a constraint does, as one that stands in a module."""

    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The ``entered`` graph of a module before it is laid out; what makes its values once (``alike``: by the number of
    a value in which region it is made and what it is, but for how it lies); the constraints that stand in the module,
    in order.
    """

    entered: Entered
    alike: Mapping[int, object]
    written: tuple[Any, ...]
    rules: Rules
    opened: dict[tuple[int, ...], tuple[Graph, Uses]] = field(default_factory=dict)
    """The graph with what stands before loops, by the arguments that have a stated layout."""
    networks: dict[tuple[object, ...], tuple[Writer, Network]] = field(default_factory=dict)
    """By what reads other values where constraints are applied."""

    @classmethod
    def read(
        cls, module: Any, reading: Reading, rules: Rules, passes: Passes, names: Mapping[str, Any]
    ) -> Template | None:
        """The template of a module; None where it is not known what the passes make of it.

        ``names`` are those of the graph's arguments and results.
        """
        entered = Entered.read(module, reading, names)
        if entered is None or not is_known(entered.graph) or _is_cleaned(module, passes):
            return None
        alike, written = dict[int, object](), [operation for operation, name in nested(module) if name == WRITTEN]
        for operation, name, region in _by_region(module):
            if name in CONSTANTS:
                number, value = entered.numbers.get(operation.results[0]), value_of(operation)
                if value is None:
                    return None  # what cannot be read cannot be told apart
                if number is not None:
                    alike[number] = region, value
            elif name == BROADCAST and not operation.operands[0].type.shape:
                number = entered.numbers.get(operation.results[0])
                if number is not None:
                    alike[number] = region, operation.attributes[FORM], operation.results[0].type
        return cls(entered=entered, alike=alike, written=tuple(written), rules=rules)

    def with_constraints(self, constraints: Sequence[tuple[Spot, Any]]) -> Template:
        """The same with constraints at these spots, each an attribute that says how what it makes lies."""
        known = self.entered
        graph, uses = constrained(known.graph, known.uses, [spot for spot, _ in constraints], self.rules)
        said = dict(zip((op.results[0] for op in known.graph.of_kind(CONSTRAINT)), self.written, strict=True))
        said |= {
            number: Said({SHARDING: each}) for number, (_, each) in enumerate(constraints, len(known.graph.values))
        }
        written = tuple([said[op.results[0]] for op in graph.of_kind(CONSTRAINT)])
        return replace(self, entered=replace(known, graph=graph, uses=uses), written=written, opened={}, networks={})

    def laid_out(self, arguments: Sequence[Any], results: Sequence[Any], lying: Lying) -> Graph | None:
        """The graph where ``sdy.sharding`` attributes say this of arguments and results, None of those of which nothing
        is said, and the module's constraints what they have now. None where it is not known what the passes make of it.
        """
        whole = self.entered.graph
        stated = tuple([value for value, each in zip(whole.arguments, arguments, strict=True) if each is not None])
        if stated not in self.opened:
            self.opened[stated] = opened(whole, self.entered.uses, stated, self.rules)
        graph, uses = self.opened[stated]
        constraints = said_by(whole, self.written, lying) | left_open(graph, len(whole.values), lying)
        before, changing = applied(graph, uses, [*map(lying.number, arguments)], constraints, lying.layouts)
        writer, found = self._network(stated, changing)
        layouts, leaving = found.spread(before, [*map(lying.number, results)])
        edges = [(graph.values[v], layouts[v]) for v in writer.graph.arguments]
        edges += [(graph.values[v], layout) for v, layout in zip(writer.graph.results, leaving, strict=True)]
        if not all(_is_plain(value.shape, lying.layouts.of(layout), lying.mesh) for value, layout in edges):
            return None
        return writer.laid_out(layouts, leaving, lying)

    def _network(self, stated: tuple[int, ...], changing: Changing) -> tuple[Writer, Network]:
        """What writes the graph, and its network, where some read other values."""
        key = stated, tuple(changing.operands.items()), tuple(changing.behind)
        if key not in self.networks:
            graph, uses = changed(*self.opened[stated], changing)
            alike = {
                op.results[0]: (self.alike[op.results[0]], op.operands)
                for op in graph.ops
                if op.results and op.results[0] in self.alike
            }
            writer = Writer(graph=graph, nests=self.entered.nests, alike=alike)
            self.networks[key] = writer, network(graph, uses, self.rules)
        return self.networks[key]


def left_open(graph: Graph, first: int, lying: Lying) -> dict[int, int]:
    """The layouts of what constraints before loops make, whose values are the last of a graph."""
    return {number: lying.open(len(graph.shape(number))) for number in range(first, len(graph.values))}


def said_by(graph: Graph, written: Sequence[Any], lying: Lying) -> dict[int, int]:
    """The layouts that a graph's constraints have in its module, by what they make."""
    made = [op.results[0] for op in graph.of_kind(CONSTRAINT)] if written else []
    return {value: lying.number(each.attributes[SHARDING]) for value, each in zip(made, written, strict=True)}


def _is_plain(shape: Sequence[int], layout: Layout | None, mesh: Mapping[str, int]) -> bool:
    """Whether what enters or leaves a step is split evenly over whole axes: else Shardy sees to it."""
    return all(
        all(axis.size == mesh[axis.name] for axis in axes) and not size % math.prod(axis.size for axis in axes)
        for size, (axes, _) in zip(shape, layout or (), strict=False)
    )


def _by_region(module: Any) -> Iterator[tuple[Any, str, int]]:
    """The operations of functions and loops, each with its name and the number of the region in which it stands."""
    waiting = [module]
    for number, region in enumerate(region for parent in waiting for region in parent.regions):
        for operation in (each.operation for block in region.blocks for each in block.operations):
            name = operation.name
            yield operation, name, number
            if name in NESTING:
                waiting.append(operation)


def _is_cleaned(module: Any, passes: Passes) -> bool:
    """Whether Shardy's last passes take operations out of a module that have no part in how values lie."""
    copy, counts = module.clone(), []
    for each in CLEANING:
        passes.run(each, copy)
        counts.append(sum(1 for _ in nested(copy)))
    return counts[0] != counts[1]
