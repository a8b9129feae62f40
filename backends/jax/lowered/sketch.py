"""Where propagation takes the values of a step, found fast: over a module that is prepared once for all layouts.

The constraints that a plan asks for are put into the prepared module, where those of a lowered step stand in it before
it is prepared. So what is found is nearly what ``Draft.laid_out`` would have, in a fraction of the time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jax.sharding import NamedSharding
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from ....planner.graph import Graph, Sharding
from ..layouts import StepLayouts
from ..shardings import DeviceMesh
from ..tag_values import tag_values
from .attributes import value_of
from .draft import Draft
from .edges import ARGUMENTS, RESULTS
from .propagation import main_function, propagate_only, split
from .reading import Reading
from .rewrites.rewriter import BROADCAST
from .rewrites.simplify import NESTING, nested
from .shardings import RESHARDS
from .spreading.constrained import Spot, made_once, turns
from .spreading.entered import rooms
from .spreading.flat import Flat
from .spreading.template import Template
from .step_graph import edge_attributes, lies_of, spread_graph
from .value_names import WHILE, Name, all_names, reads

FILL = "sdy.constant"
OPERAND = re.compile(r"\.in(\d+)(?=$|/)")
Made = tuple[int, int]


class Sketch:
    """A draft's module as it is before a plan lays it out, and where in it each value that a plan can name is made.

    ``layouts`` are those of what the model itself lays out; nothing else of them counts.
    """

    def __init__(self, draft: Draft, layouts: StepLayouts, placed: DeviceMesh):
        self.draft = draft
        self._module = draft.unlaid(layouts, placed)
        split(self._module)
        self._whole = None if draft.convolves else Whole(draft, self._module.clone())
        _lean(self._module)
        self._main = main_function(self._module)
        self._flat: list[Flat | None] = []
        self._paths: dict[str, tuple[int | None, Sharding]] = {}
        self._makers: dict[str, list[Made]] = defaultdict(list)
        self._names: dict[Any, tuple[Name, ...]] = {}
        self._noted: set[int] = set()
        self._swapped: set[tuple[int, str]] = set()  # operations that read the operands of a path in the other order
        self._readers: dict[str, list[Made]] = defaultdict(list)
        with self._module.context:
            for at, (operation, _) in enumerate(nested(self._module)):
                for number, path, is_swapped in all_names(operation.location):
                    if number < len(operation.results):  # else what a function is given, and not made
                        self._makers[path].append((at, number))
                    if is_swapped:
                        self._swapped.add((at, path))
                for position, path in enumerate(reads(operation.attributes)):
                    self._noted.add(at)
                    self._readers[path].append((at, position))
        for tag, paths in tag_values(draft.traced).items():
            self._makers[tag] = [spot for path in paths for spot in self._makers.get(path, ())]

    def graph(self, layouts: StepLayouts, placed: DeviceMesh, reading: Reading) -> Graph | None:
        """The graph that propagation gives under a plan's layouts, nearly; None where that is not known."""
        if self._whole is None:
            return None
        chosen, main = self.draft.chosen(layouts, placed), self._whole.main
        with self._whole.module.context, ir.Location.unknown():
            template = self._whole.template(reading)
            spots = None if template is None else self._spots(template.entered.graph, self._whole, chosen)
            if template is None or spots is None:
                return None
            self.draft.lay_edges(main, layouts, placed)
            lying = self.draft.lying(tuple(placed.mesh.shape.items()))
            return spread_graph(template.with_constraints(spots), main, lying, reading)

    def lies(self, layouts: StepLayouts, placed: DeviceMesh, reading: Reading) -> dict[str, Sharding]:
        """How the computed values lie after propagation, by path, under a plan's layouts of arguments and values."""
        chosen = self.draft.chosen(layouts, placed)
        with self._module.context, ir.Location.unknown():
            known = self._known(chosen, layouts, placed, reading)
            return self._propagated(chosen, layouts, placed, reading) if known is None else known

    def _known(
        self, chosen: Mapping[int, NamedSharding], layouts: StepLayouts, placed: DeviceMesh, reading: Reading
    ) -> dict[str, Sharding] | None:
        """The same, found without Shardy; None where that is not known."""
        if not self._flat:
            self._flat.append(Flat.read(self._module, reading, self.draft.rules))
        (flat,) = self._flat
        spots = None if flat is None else self._spots(flat.graph, flat, chosen)
        if flat is None or spots is None:
            return None
        self.draft.lay_edges(self._main, layouts, placed)
        entering = edge_attributes(self._main, ARGUMENTS, len(flat.graph.arguments), reading)
        leaving = edge_attributes(self._main, RESULTS, len(flat.graph.results), reading)
        lies = flat.lies(spots, lies_of(entering), lies_of(leaving))
        if not self._paths:
            self._paths |= self._numbered(flat)
        return {path: whole if number is None else lies[number] for path, (number, whole) in self._paths.items()}

    def _numbered(self, flat: Flat) -> dict[str, tuple[int | None, Sharding]]:
        """By path the number of the value, None of one that nothing reads, and its layout where it is whole."""
        found: dict[str, tuple[int | None, Sharding]] = {}
        for at, (operation, _) in enumerate(nested(self._module)):
            for number, path, _ in all_names(operation.location):
                if number < len(operation.results):
                    found.setdefault(path, (flat.made[at][number], _whole(operation.results[number])))
        return found

    def _spots(
        self, graph: Graph, at_hand: Flat | Whole, chosen: Mapping[int, NamedSharding]
    ) -> list[tuple[Spot, Any]] | None:
        """Where in a graph a plan's constraints stand, with what they say; None where nothing else reads what one lays
        out.
        """
        found, made, makers = list[tuple[Spot, Any]](), at_hand.made, at_hand.makers
        for number, attribute in self.draft.edges.attributes(chosen).items():
            place = self.draft.places[number]
            if place.assignment is not None and not place.is_operand:
                continue
            several = self._reading(place.path) if place.is_operand else self._makers.get(place.path, ())
            for at, position in several:
                value = made[at][0 if place.is_operand else position]
                if value is None:
                    return None
                maker, reader = makers[value], None
                if place.is_operand:
                    operands, reader = graph.ops[maker].operands, maker
                    if position >= len(operands):
                        continue
                    value = operands[position]
                if graph.shape(value) == place.shape:
                    position = position if place.is_operand else 0
                    found.append((Spot(value=value, maker=maker, reader=reader, position=position), attribute))
                    if not place.is_operand and place.path in self.draft.traced.values.carried:
                        found += [(spot, attribute) for spot in at_hand.turns.get(value, ())]
        return made_once(found, at_hand.rooms)

    def _reading(self, path: str) -> list[Made]:
        """The operations that read the operand of this path, each with its position: noted where one took the place of
        others.
        """
        position, own = int(OPERAND.search(path)[1]), OPERAND.sub("", path)  # type: ignore[index]
        named = [at for at, _ in self._makers.get(own, ()) if at not in self._noted]
        return self._readers.get(path) or [
            (at, 1 - position if (at, own) in self._swapped else position) for at in named
        ]

    def _propagated(
        self, chosen: Mapping[int, NamedSharding], layouts: StepLayouts, placed: DeviceMesh, reading: Reading
    ) -> dict[str, Sharding]:
        """The same by Shardy's passes."""
        copy = self._module.clone()
        with copy.context, ir.Location.unknown():
            made = [operation for operation, _ in nested(copy)] if chosen else []
            for number, attribute in self.draft.edges.attributes(chosen).items():
                place = self.draft.places[number]
                if place.is_operand:
                    self._constrain_operand(made, place.path, place.shape, attribute)
                elif place.assignment is None:
                    self._constrain(made, place.path, place.shape, attribute)
            self.draft.lay_edges(main_function(copy), layouts, placed)
            propagate_only(copy, self.draft.passes, has_loops=self.draft.has_loops)
            found: dict[str, Sharding] = {}
            for path, axes in self._lies(copy, reading):
                found.setdefault(path, axes)  # constants are copied
            return found

    def _lies(self, module: Any, reading: Reading) -> Iterator[tuple[str, Sharding]]:
        """The named values of a propagated module."""
        for operation, name in nested(module):
            location = operation.location
            key = location.attr
            names = self._names.get(key)
            if names is None:
                names = self._names[key] = all_names(location)
            if not names:
                continue
            found: tuple[Sharding, ...] = ()
            if name in RESHARDS:
                found = (reading.sharding(operation.attributes["sharding"]),)
            elif (said := operation.attributes.get("sdy.sharding")) is not None:
                found = reading.per_value(said)
            for number, path, _ in names:
                if number < len(operation.results):
                    yield path, (found[number] if number < len(found) else None) or _whole(operation.results[number])

    def _constrain(self, made: list[Any], path: str, shape: tuple[int, ...], attribute: Any) -> None:
        """Puts constraints behind the operations that make a value."""
        for at, number in self._makers.get(path, ()):
            value = made[at].results[number]
            if _shape(value) == shape:
                _constrain_at(ir.InsertionPoint.after(made[at]), made[at], value, attribute)
                if path in self.draft.traced.values.carried and made[at].name == WHILE:
                    _constrain_turns(made[at], number, attribute)

    def _constrain_operand(self, made: list[Any], path: str, shape: tuple[int, ...], attribute: Any) -> None:
        """Puts constraints before the operations that read an operand so."""
        for at, position in self._reading(path):
            operation = made[at]
            if position < len(operation.operands) and _shape(operation.operands[position]) == shape:
                with ir.InsertionPoint(operation), operation.location.child_loc:
                    constraint = sdy.ShardingConstraintOp(operation.operands[position], attribute)
                operation.operands[position] = constraint.result


class Whole:
    """A draft's ``module`` as it is before a plan lays it out, with all that it computes; ``made`` are the numbers that
    its template's graph has for what each operation makes, ``makers`` the places in the graph of what makes each value.
    """

    def __init__(self, draft: Draft, module: Any):
        self.draft, self.module, self.main = draft, module, main_function(module)
        self.made: tuple[tuple[int | None, ...], ...] = ()
        self.makers: Mapping[int, int] = {}
        self.turns: Mapping[int, tuple[Spot, Spot]] = {}
        self.rooms: Sequence[int] = ()
        self._templates: list[Template | None] = []

    def template(self, reading: Reading) -> Template | None:
        """The template of the module, read the first time; None where it has operations that are not known."""
        if not self._templates:
            found = self.draft.template(self.module, reading)
            self._templates.append(found)
            if found is not None:
                numbers = found.entered.numbers
                self.made = tuple([tuple(map(numbers.get, each.results)) for each, _ in nested(self.module)])
                self.makers, self.turns = found.entered.makers(), turns(found.entered.graph)
                self.rooms = rooms(found.entered.graph)
        return self._templates[0]


def _lean(module: Any) -> None:
    """Takes out of a module, in place, what has no part in where values lie: numbers become constants of the shape that
    they are spread to, as each is for one reader, and regions of scalars give back what they are given.
    """
    with module.context, ir.Location.unknown():
        for operation, name in list(nested(module)):
            if name == BROADCAST:
                _fill(operation)
            elif name not in NESTING:
                _empty(operation)


def _fill(broadcast: Any) -> None:
    """Puts a constant in the place of a number that is spread."""
    maker, made = broadcast.operands[0].owner, broadcast.results[0]
    if isinstance(maker, ir.Block) or maker.name != FILL or broadcast.operands[0].type.shape:
        return
    value = value_of(maker.operation)
    if not isinstance(value, ir.DenseElementsAttr):
        return
    filled = ir.DenseElementsAttr.get_splat(made.type, value.get_splat_value())
    at = ir.InsertionPoint(broadcast)
    constant = ir.Operation.create(FILL, [made.type], attributes={"value": filled}, loc=broadcast.location, ip=at)
    made.replace_all_uses_with(constant.results[0])
    broadcast.erase()


def _empty(operation: Any) -> None:
    """Takes all out of an operation's regions but what they end with."""
    for block in (block for region in operation.regions for block in region.blocks):
        *inside, last = [each.operation for each in block.operations]
        for number, argument in zip(range(len(last.operands)), block.arguments, strict=False):
            last.operands[number] = argument
        for each in reversed(inside):
            each.erase()


def _constrain_at(point: ir.InsertionPoint, maker: Any, value: Any, attribute: Any) -> None:
    """Puts a constraint on a value, which all that reads it reads from then on."""
    with point, maker.location.child_loc:
        constraint = sdy.ShardingConstraintOp(value, attribute)
    value.replace_all_uses_except(constraint.result, constraint.operation)


def _constrain_turns(loop: Any, number: int, attribute: Any) -> None:
    """Puts constraints on what a loop carries where its turns begin and end."""
    body = loop.regions[1].blocks[0]
    *_, last = body.operations
    with ir.InsertionPoint(last), loop.location.child_loc:
        constraint = sdy.ShardingConstraintOp(last.operands[number], attribute)
    last.operation.operands[number] = constraint.result
    _constrain_at(ir.InsertionPoint.at_block_begin(body), loop, body.arguments[number], attribute)


def _shape(value: Any) -> tuple[int, ...]:
    return tuple(value.type.shape)


def _whole(value: Any) -> Sharding:
    return ((),) * len(value.type.shape)
