"""Where propagation takes the values of a step, found fast: over a module that is prepared once for all layouts.

The constraints that a plan asks for are put into the prepared module, where those of a lowered step stand in it before
it is prepared. So what is found is nearly what ``Draft.laid_out`` would have, in a fraction of the time.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from ....planner.graph import Sharding
from ..layouts import StepLayouts
from ..shardings import DeviceMesh
from ..tag_values import tag_values
from .attributes import value_of
from .draft import Draft
from .propagation import main_function, propagate_only, split
from .reading import Reading
from .rewrites.rewriter import BROADCAST
from .rewrites.simplify import NESTING, nested
from .shardings import RESHARDS
from .value_names import WHILE, all_names

FILL = "sdy.constant"
OPERAND = re.compile(r"\.in(\d+)(?=$|/)")
Spot = tuple[int, int]


class Sketch:
    """A draft's module as it is before a plan lays it out, and where in it each value that a plan can name is made.

    ``layouts`` are those of what the model itself lays out; nothing else of them counts.
    """

    def __init__(self, draft: Draft, layouts: StepLayouts, placed: DeviceMesh):
        self.draft = draft
        self._module = draft.unlaid(layouts, placed)
        split(self._module)
        _lean(self._module)
        self._makers: dict[str, list[Spot]] = defaultdict(list)
        self._names: dict[Any, tuple[tuple[int, str], ...]] = {}
        with self._module.context:
            for at, (operation, _) in enumerate(nested(self._module)):
                for number, path in all_names(operation.location):
                    self._makers[path].append((at, number))
        for tag, paths in tag_values(draft.traced).items():
            self._makers[tag] = [spot for path in paths for spot in self._makers.get(path, ())]

    def lies(self, layouts: StepLayouts, placed: DeviceMesh, reading: Reading) -> dict[str, Sharding]:
        """How the computed values lie after propagation, by path, under a plan's layouts of arguments and values."""
        chosen, copy = self.draft.chosen(layouts, placed), self._module.clone()
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
            for number, path in names:
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
        position = int(OPERAND.search(path)[1])  # type: ignore[index]
        for at, _ in self._makers.get(OPERAND.sub("", path), ()):
            operation = made[at]
            if position < len(operation.operands) and _shape(operation.operands[position]) == shape:
                with ir.InsertionPoint(operation), operation.location.child_loc:
                    constraint = sdy.ShardingConstraintOp(operation.operands[position], attribute)
                operation.operands[position] = constraint.result


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
