"""A prepared module read once, from which the graph of each plan is made as Shardy's passes would leave it.

What they do besides propagation is done to the graph: constraints become reshards, constants and numbers that are
spread are made once where they lie alike, and a product whose result lies otherwise than what it adds up is resharded
behind itself (``constant_or_scalar_merger.cc``, ``insert_explicit_reshards.cc``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from jaxlib.mlir.dialects import sdy

from .....planner.graph import Factors, Graph, Op, Sharding, Value
from ..attributes import FORM, value_of
from ..body import Body
from ..loops import CONSTANTS
from ..passes import Passes
from ..propagation import is_simple, main_function
from ..reading import Reading
from .applied import applied
from .axes import Axis, name_of
from .constrained import Spot, constrained
from .dot import resharded
from .network import CONSTRAINT, Rules, is_known, network
from .rounds import Layouts, Network
from .rule import Layout
from .uses import Changing, Use, Uses, changed, uses_of

CONCATENATE, DOT, RESHARD = "concatenate", "dot_general", "reshard"
SHARDING = "sharding"
MOST_WRITTEN = 16
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
class Lying:
    """Layouts over one mesh: what attributes say of them, and values that lie so."""

    mesh: Mapping[str, int]
    layouts: Layouts
    said: dict[Any, int] = field(default_factory=dict)
    shardings: dict[int, Sharding] = field(default_factory=dict)
    values: dict[tuple[int, int], tuple[Value, Value]] = field(default_factory=dict)
    products: dict[tuple[int, tuple[int, ...]], tuple[Factors, int]] = field(default_factory=dict)

    @property
    def used(self) -> list[str]:
        """The axes of more than one device."""
        return [name for name, size in self.mesh.items() if size > 1]

    def number(self, attribute: Any) -> int:
        """The layout's number that a ``sdy.sharding`` says; 0 of None. Axes of one device are left out."""
        if attribute is None:
            return 0
        found = self.said.get(attribute)
        if found is None:
            found = self.said[attribute] = self.layouts.number(tuple(self._dims(attribute)))
        return found

    def _dims(self, attribute: Any) -> Iterator[tuple[tuple[Axis, ...], bool]]:
        for each in sdy.TensorShardingAttr(attribute).dimension_shardings:
            dim = sdy.DimensionShardingAttr(each)
            names = [sdy.AxisRefAttr(axis).name for axis in dim.axes]
            yield tuple([Axis(name, 1, self.mesh[name]) for name in names if self.mesh[name] > 1]), dim.is_closed

    def sharding(self, number: int) -> Sharding:
        """The sharding of a layout of which something is said."""
        found = self.shardings.get(number)
        if found is None:
            layout = self.layouts.of(number) or ()
            found = tuple([tuple([name_of(axis, self.mesh) for axis in axes]) for axes, _ in layout])
            self.shardings[number] = found
        return found

    def value(self, whole: Value, number: int) -> Value:
        """A value, ``whole`` as it is read, in a layout."""
        if not number:
            return whole
        key = id(whole), number
        found = self.values.get(key)
        if found is None:
            found = self.values[key] = whole, replace(whole, sharding=self.sharding(number))
        return found[1]

    def product(self, own: Factors, numbers: tuple[int, ...]) -> int:
        """The layout in which a product of these operands and result is made, where it is another; else 0."""
        key = id(own), numbers
        found = self.products.get(key)
        if found is None:
            made = resharded(own, [self.layouts.of(number) for number in numbers])
            found = self.products[key] = own, self.layouts.number(made)
        return found[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What is written of a graph's operations whatever its values' layouts: by the place of each value its number in
    the graph (``sources``), and the places of those that the step is given and returns.
    """

    ops: tuple[Op, ...]
    sources: tuple[int, ...]
    arguments: tuple[int, ...]
    results: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Writes a graph as plans lay it out.

    ``alike`` says of values that may be made once what makes them, and of what. ``known`` is what was written, by what
    is made once and which products are resharded.
    """

    graph: Graph
    alike: Mapping[int, tuple[object, tuple[int, ...]]]
    known: dict[tuple[object, ...], Written] = field(default_factory=dict)

    def laid_out(self, layouts: Sequence[int], leaving: Sequence[int], lying: Lying) -> Graph | None:
        """The graph whose values and results lie so; None where Shardy sees to how something is concatenated."""
        whole = self.graph.values
        if not all(self._lies_alike(op, layouts, lying) for op in self.graph.of_kind(CONCATENATE)):
            return None
        once, turned = self._once(layouts), self._turned(layouts, lying)
        key = tuple(once.items()), tuple(turned)
        written = self.known.get(key)
        if written is None:
            if len(self.known) >= MOST_WRITTEN:
                self.known.clear()
            written = self.known[key] = _written(self.graph, once, turned.keys())
        values = [lying.value(whole[number], layouts[number]) for number in written.sources]
        for number, made in turned.items():
            values[written.sources.index(number)] = lying.value(whole[number], made)
        ops, results = list(written.ops), list(written.results)
        for position, number in enumerate(leaving):
            if number and lying.sharding(number) != values[results[position]].sharding:
                values.append(replace(values[results[position]], sharding=lying.sharding(number)))
                ops.append(Op(kind=RESHARD, operands=(results[position],), results=(len(values) - 1,)))
                results[position] = len(values) - 1
        arguments = written.arguments
        return replace(self.graph, values=tuple(values), ops=tuple(ops), arguments=arguments, results=tuple(results))

    def _lies_alike(self, op: Op, layouts: Sequence[int], lying: Lying) -> bool:
        """Whether all that is concatenated lies as the whole does; else Shardy sees to it."""
        rank = len(self.graph.shape(op.results[0]))
        numbers = {layouts[number] for number in (*op.operands, *op.results)}
        return len({lying.sharding(number) if number else ((),) * rank for number in numbers}) < 2

    def _once(self, layouts: Sequence[int]) -> dict[int, int]:
        """The values that are made already, each with the one that is the same."""
        found: dict[int, int] = {}
        made: dict[object, int] = {}
        for number, (what, operands) in self.alike.items():
            key = what, tuple([found.get(value, value) for value in operands]), layouts[number]
            first = made.setdefault(key, number)
            if first != number:
                found[number] = first
        return found

    def _turned(self, layouts: Sequence[int], lying: Lying) -> dict[int, int]:
        """The results of products that are made in another layout than they lie in, each with that."""
        found = {}
        for op in self.graph.of_kind(DOT):
            numbers = tuple([layouts[number] for number in (*op.operands, *op.results)])
            made = lying.product(op.factors, numbers) if op.factors and all(numbers) else 0
            if made:
                found[op.results[0]] = made
        return found


def _written(graph: Graph, once: Mapping[int, int], turned: Collection[int]) -> Written:
    """The operations of a graph where some values are made ``once``, and some products resharded behind themselves."""
    at, ops, sources = list(range(len(graph.values))), list[Op](), list(graph.arguments)
    for place, number in enumerate(graph.arguments):
        at[number] = place
    for op in graph.ops:
        operands = tuple([at[number] for number in op.operands])
        if op.results[0] in once:
            at[op.results[0]] = at[once[op.results[0]]]
            continue
        made = tuple(range(len(sources), len(sources) + len(op.results)))
        sources += op.results
        for number, place in zip(op.results, made, strict=True):
            at[number] = place
        if op.kind == CONSTRAINT:
            ops.append(Op(kind=RESHARD, operands=operands, results=made, attributes=op.attributes, origin=op.origin))
            continue
        ops.append(op.moved(operands, made))
        if op.results[0] in turned:
            at[op.results[0]] = len(sources)
            sources += op.results
            ops.append(Op(kind=RESHARD, operands=made, results=(at[op.results[0]],), origin=op.origin))
    ends = ([at[number] for number in edge] for edge in (graph.arguments, graph.results))
    arguments, results = map(tuple, ends)
    return Written(ops=tuple(ops), sources=tuple(sources), arguments=arguments, results=results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """The ``graph`` of a module before it is laid out, with its ``uses``; what makes its values once (``alike``: by the
    number of a value what it is, but for how it lies); the constraints that stand in the module, in order. ``known``
    gives the number in the graph of what the module's operations make, None of what nothing reads.
    """

    graph: Graph
    uses: Uses
    alike: Mapping[int, object]
    written: tuple[Any, ...]
    rules: Rules
    known: Callable[[Any], int | None]
    networks: dict[tuple[tuple[Use, int], ...], tuple[Writer, Network]] = field(default_factory=dict)
    """By what reads other values where constraints are applied."""

    @classmethod
    def read(
        cls, module: Any, reading: Reading, rules: Rules, passes: Passes, names: Mapping[str, Any]
    ) -> Template | None:
        """The template of a module; None where it is not known what the passes make of it.

        ``names`` are those of the graph's arguments and results.
        """
        if not is_simple(module):
            return None
        block = main_function(module).regions[0].blocks[0]
        body = Body(reading).read(block, [reading.value(each.type, None) for each in block.arguments])
        graph = body.graph(**names)
        if not is_known(graph) or _is_cleaned(module, passes):
            return None
        alike, written = dict[int, object](), list[Any]()
        for operation in (each.operation for each in block.operations):
            name = operation.name
            if name in CONSTANTS:
                number, value = body.known(operation.results[0]), value_of(operation)
                if value is None:
                    return None  # what cannot be read cannot be told apart
                if number is not None:
                    alike[number] = value
            elif name == WRITTEN:
                written.append(operation)
            elif name == BROADCAST and not operation.operands[0].type.shape:
                alike[body.number(operation.results[0])] = operation.attributes[FORM], operation.results[0].type
        return cls(graph=graph, uses=uses_of(graph), alike=alike, written=tuple(written), rules=rules, known=body.known)

    def with_constraints(self, constraints: Sequence[tuple[Spot, Any]]) -> Template:
        """The same with constraints at these spots, each an attribute that says how what it makes lies."""
        graph, uses = constrained(self.graph, self.uses, [spot for spot, _ in constraints], self.rules)
        said = dict(zip((op.results[0] for op in self.graph.of_kind(CONSTRAINT)), self.written, strict=True))
        said |= {number: Said({SHARDING: each}) for number, (_, each) in enumerate(constraints, len(self.graph.values))}
        written = tuple([said[op.results[0]] for op in graph.of_kind(CONSTRAINT)])
        return replace(self, graph=graph, uses=uses, written=written, networks={})

    def laid_out(self, arguments: Sequence[Any], results: Sequence[Any], lying: Lying) -> Graph | None:
        """The graph where ``sdy.sharding`` attributes say this of arguments and results, None of those of which nothing
        is said, and the module's constraints what they have now. None where it is not known what the passes make of it.
        """
        constraints = said_by(self.graph, self.written, lying)
        before, changing = applied(self.graph, self.uses, [*map(lying.number, arguments)], constraints, lying.layouts)
        writer, found = self._network(changing)
        graph = writer.graph
        layouts, leaving = found.spread(before, [*map(lying.number, results)])
        edges = [(graph.values[v], layouts[v]) for v in graph.arguments]
        edges += [(graph.values[v], layout) for v, layout in zip(graph.results, leaving, strict=True)]
        if not all(_is_plain(value.shape, lying.layouts.of(layout), lying.mesh) for value, layout in edges):
            return None
        return writer.laid_out(layouts, leaving, lying)

    def _network(self, changing: Changing) -> tuple[Writer, Network]:
        """What writes the graph, and its network, where some read other values."""
        key = tuple(changing.operands.items())
        if key not in self.networks:
            graph, uses = changed(self.graph, self.uses, changing)
            alike = {
                op.results[0]: (self.alike[op.results[0]], op.operands)
                for op in graph.ops
                if op.results[0] in self.alike
            }
            self.networks[key] = Writer(graph=graph, alike=alike), network(graph, uses, self.rules)
        return self.networks[key]


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


def _is_cleaned(module: Any, passes: Passes) -> bool:
    """Whether Shardy's last passes take operations out of a module that have no part in how values lie."""
    copy, counts = module.clone(), []
    for each in CLEANING:
        passes.run(each, copy)
        counts.append(sum(1 for _ in main_function(copy).regions[0].blocks[0].operations))
    return counts[0] != counts[1]
