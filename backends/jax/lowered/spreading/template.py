"""A prepared module read once, from which the graph of each plan is made as Shardy's passes would leave it.

What they do besides propagation is done to the graph: constraints become reshards, constants and numbers that are
spread are made once where they lie alike, and a product whose result lies otherwise than what it adds up is resharded
behind itself (``constant_or_scalar_merger.cc``, ``insert_explicit_reshards.cc``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from jaxlib.mlir.dialects import sdy

from .....planner.graph import Factors, Graph, Op, Sharding, Value, plain_op
from ..attributes import FORM
from ..body import Body
from ..loops import CONSTANTS
from ..passes import Passes
from ..propagation import is_simple, main_function
from ..reading import Reading
from .applied import applied
from .axes import Axis, name_of
from .dot import resharded
from .network import CONSTRAINT, Rules, is_known, network
from .rounds import Layouts, Network
from .rule import Layout
from .uses import Changing, Use, Uses, changed, uses_of

CONCATENATE, DOT, RESHARD = "concatenate", "dot_general", "reshard"
BROADCAST, WRITTEN = "stablehlo.broadcast_in_dim", "sdy.sharding_constraint"
CLEANING = (
    "func.func(sdy-constant-or-scalar-merger)",
    ("canonicalize{region-simplify=aggressive top-down=false enable-patterns=sdy-collective}"),
)
"""What of Shardy's passes may change operations for other reasons than how they lie, one after the other."""


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
class Template:
    """The ``graph`` of a module before it is laid out, with its ``uses``; what makes its values once (``alike``: by the
    number of a value what it is, but for how it lies); the constraints that stand in the module, in order.
    """

    graph: Graph
    uses: Uses
    alike: Mapping[int, object]
    written: tuple[Any, ...]
    rules: Rules
    networks: dict[tuple[tuple[Use, int], ...], tuple[Graph, Network]] = field(default_factory=dict)
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
                if (number := body.known(operation.results[0])) is not None:
                    alike[number] = operation.attributes["value"]
            elif name == WRITTEN:
                written.append(operation)
            elif name == BROADCAST and not operation.operands[0].type.shape:
                alike[body.number(operation.results[0])] = operation.attributes[FORM], operation.results[0].type
        return cls(graph=graph, uses=uses_of(graph), alike=alike, written=tuple(written), rules=rules)

    def laid_out(self, arguments: Sequence[Any], results: Sequence[Any], lying: Lying) -> Graph | None:
        """The graph where ``sdy.sharding`` attributes say this of arguments and results, None of those of which nothing
        is said, and the module's constraints what they have now. None where it is not known what the passes make of it.
        """
        constraints = said_by(self.graph, self.written, lying)
        before, changing = applied(self.graph, self.uses, [*map(lying.number, arguments)], constraints, lying.layouts)
        graph, found = self._network(changing)
        layouts, leaving = found.spread(before, [*map(lying.number, results)])
        edges = [(graph.values[v], layouts[v]) for v in graph.arguments]
        edges += [(graph.values[v], layout) for v, layout in zip(graph.results, leaving, strict=True)]
        if not all(_is_plain(value.shape, lying.layouts.of(layout), lying.mesh) for value, layout in edges):
            return None
        return _Writer(graph, self.alike, layouts, lying).graph(leaving)

    def _network(self, changing: Changing) -> tuple[Graph, Network]:
        """The graph and its network where some read other values."""
        key = tuple(changing.operands.items())
        if key not in self.networks:
            graph, uses = changed(self.graph, self.uses, changing)
            self.networks[key] = graph, network(graph, uses, self.rules)
        return self.networks[key]


def said_by(graph: Graph, written: Sequence[Any], lying: Lying) -> dict[int, int]:
    """The layouts that a graph's constraints have in its module, by what they make."""
    made = [op.results[0] for op in graph.of_kind(CONSTRAINT)] if written else []
    return {value: lying.number(each.attributes["sharding"]) for value, each in zip(made, written, strict=True)}


class _Writer:
    """A template's graph as a plan lays it out."""

    def __init__(self, graph: Graph, alike: Mapping[int, object], layouts: Sequence[int], lying: Lying):
        self.source, self.alike, self.layouts, self.lying = graph, alike, layouts, lying
        self.values: list[Value] = []
        self.ops: list[Op] = []
        self.at = list(range(len(layouts)))
        self._made: dict[object, int] = {}

    def graph(self, leaving: Sequence[int]) -> Graph | None:
        source, lying = self.source, self.lying
        alike, at, layouts, values, ops = self.alike, self.at, self.layouts, self.values, self.ops
        whole = source.values
        for number in source.arguments:
            self._add(number)
        for op in source.ops:
            kind = op.kind
            if kind == CONCATENATE and not self._lies_alike(op):
                return None
            operands = tuple([at[number] for number in op.operands])
            (result,) = op.results if len(op.results) == 1 else (-1,)
            if result < 0:
                ops.append(op.moved(operands, tuple([self._add(number) for number in op.results])))
                continue
            if result in alike:
                key = alike[result], operands, layouts[result]
                if key in self._made:
                    at[result] = self._made[key]
                    continue
                self._made[key] = len(values)
            at[result] = made = len(values)
            values.append(lying.value(whole[result], layouts[result]))
            if kind == CONSTRAINT:
                ops.append(plain_op(RESHARD, operands, (made,), op.attributes, op.origin))
            else:
                ops.append(plain_op(kind, operands, (made,), op.attributes, op.origin, op.factors))
                if kind == DOT:
                    self._reshard(op, result)
        results = [at[number] for number in source.results]
        for position, number in enumerate(leaving):
            if number and lying.sharding(number) != values[results[position]].sharding:
                values.append(replace(values[results[position]], sharding=lying.sharding(number)))
                ops.append(Op(kind=RESHARD, operands=(results[position],), results=(len(values) - 1,)))
                results[position] = len(values) - 1
        return replace(
            source,
            values=tuple(values),
            ops=tuple(ops),
            arguments=tuple([at[number] for number in source.arguments]),
            results=tuple(results),
        )

    def _add(self, number: int) -> int:
        self.at[number] = made = len(self.values)
        self.values.append(self.lying.value(self.source.values[number], self.layouts[number]))
        return made

    def _lies_alike(self, op: Op) -> bool:
        """Whether all that is concatenated lies as the whole does; else Shardy sees to it."""
        return len({self.lying.sharding(self.layouts[number]) for number in (*op.operands, *op.results)} - {()}) < 2

    def _reshard(self, op: Op, result: int) -> None:
        """Reshards a product that is made in another layout than it lies in."""
        numbers = tuple([self.layouts[number] for number in (*op.operands, result)])
        made = self.lying.product(op.factors, numbers) if op.factors and all(numbers) else 0
        if made:
            (number,) = self.ops[-1].results
            self.values[number] = self.lying.value(self.source.values[result], made)
            value = self._add(result)
            self.ops.append(plain_op(RESHARD, (number,), (value,), {}, op.origin))


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
