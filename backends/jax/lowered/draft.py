"""A step lowered once, before any plan, to be laid out many times: every value that a plan can name has a place in it.

A place is an operation that gives back its operand. A plan's layouts turn some into sharding constraints, and the rest
go: what is left is the module that lowering the step under that plan would give.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import jax
from jax.extend.core import JaxprEqn, jaxpr_as_fun
from jax.sharding import NamedSharding, PartitionSpec
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy

from ....dsl.plan import Assignment
from ....dsl.rule_matches import OPS
from ....dsl.tensors import Layout
from ....planner.graph import Graph
from ..convolutions import is_convolution
from ..layouts import StepLayouts
from ..planned import PLATFORMS, argument_leaves, edge_shardings
from ..shardings import DeviceMesh
from ..trace import Traced, equations
from .donation import donations
from .edges import ALIASED, ARGUMENTS, DONATED, RESULTS, Edges, Given, integer, ranked
from .forms import Forms
from .inline import inline_calls
from .passes import Passes
from .places import CONSTRAINT, Place, has_place, number_of, operations, placed_on, places_of, resolve, with_places
from .propagation import main_function, prepare, split
from .reading import Reading
from .rewrites.common import constants_once
from .rewrites.simplify import constants_ahead
from .spreading.lying import Lying
from .spreading.network import Rules
from .spreading.template import Template
from .step_graph import argument_paths, spread_graph
from .value_names import WHILE, Name, name_carried, name_value, with_names, without_names
from .value_names import value_names as value_names_at

MAX_PREPARED = 8
AND = "&"
"""Between the number of a constraint and the path of the value that it makes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A module prepared with constraints, which have the layouts that they were last given: each with its number."""

    module: Any
    main: Any
    constraints: tuple[tuple[int, Any], ...]
    templates: list[Template | None] = field(default_factory=list)
    """What was read of the module, once it was: None where it is not known what propagation makes of it."""


class Draft:
    """A step's module with its places. ``values`` is whether computed values (``ops/``) have places too.

    ``donated`` are the numbers of the donated arguments, leaves of the pytrees. ``is_layable`` says whether the module
    can be laid out as a plan says: not where the step itself names a mesh, or orders effects, nor where it has none,
    since no result comes of an argument; ``paths`` are those of the arguments that it keeps, ``convolves`` says whether
    it has convolutions, ``has_loops`` whether it has loops, ``passes`` are what modules laid out go through.
    """

    def __init__(self, traced: Traced, donated: Sequence[int], placed: DeviceMesh, platform: str, *, values: bool):
        self.traced = traced
        self.values = values
        self.platform = platform
        self.places: tuple[Place, ...] = ()
        self.passes = Passes()
        self._forms = Forms()
        self.rules = Rules()
        self._lying: dict[Hashable, Lying] = {}
        self._prepared: OrderedDict[Hashable, Prepared] = OrderedDict()
        self._asked: set[int] = set()
        self._most: frozenset[int] = frozenset()
        self._is_named = False
        self._donated = frozenset(donated)
        self._module = self._lower(placed).compiler_ir("stablehlo").operation.clone()
        self._numbers = _numbers(self.places)
        inline_calls(self._module, large=False)
        with self._module.context:  # once, as each plan would do it
            constants_once(self._module, has_place)
            constants_ahead(self._module)
        self._fewer, self._names_fewer = self._module, False
        with self._module.context:
            self.has_loops = any(op.name == WHILE for op in operations(self._module))
            main = main_function(self._module)
            self.edges = Edges(main)
            self.paths = argument_paths(main.regions[0].blocks[0], traced)
        self._gives: dict[tuple[bool, ...], Sequence[Given]] = {}
        self._positions = [_index(traced)[path] for path in self.paths if path in _index(traced)]
        self._open = [None] * len(self._positions)
        inside = list(equations(traced.jaxpr.jaxpr))
        self.convolves = any(map(is_convolution, inside))
        named = any(op.operation.name == "sdy.mesh" for op in self._module.regions[0].blocks[0].operations)
        self.is_layable = named and len(self._positions) == len(self.paths) and not any(map(_lays_out, inside))

    def _lower(self, placed: DeviceMesh) -> Any:
        traced = self.traced
        jaxpr, self.places = with_places(traced, values=self.values)
        run = jaxpr_as_fun(jaxpr)

        def step(*args: Any) -> Any:
            return jax.tree.unflatten(traced.out_tree, run(*jax.tree.leaves(args)))

        step.__name__ = getattr(traced.step, "__name__", "step")
        avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in traced.jaxpr.in_avals]
        args = jax.tree.unflatten(traced.in_tree, avals)
        whole = NamedSharding(placed.mesh, PartitionSpec())
        jitted = jax.jit(step, in_shardings=whole)
        return jitted.trace(*args).lower(lowering_platforms=(PLATFORMS[self.platform],))

    def unlaid(self, layouts: StepLayouts, placed: DeviceMesh) -> Any:
        """The module prepared for propagation, laid out as ``layouts`` say of places but not of arguments and results.

        Its operations have the names of computed values.
        """
        chosen, copy = self.chosen(layouts, placed), self._module.clone()
        with copy.context, ir.Location.unknown():
            self._over(copy, placed)
            attributes = self.edges.attributes(chosen)
            whole = [NamedSharding(placed.mesh, PartitionSpec())] * len(self.traced.results)
            self.edges.lay(main_function(copy), ARGUMENTS, self._open, self._given(whole, placed))
            for operation in list(places_of(copy)):
                self._name(operation)
                resolve(operation, attributes.get(number_of(operation)))
            prepare(copy, tpu=self.platform == "tpu")
        return copy

    def laid_out(self, layouts: StepLayouts, placed: DeviceMesh, *, named: bool = False) -> Any:
        """The module as lowering under a plan would give it, prepared for propagation and split.

        Nothing may be laid out with other axes than the mesh's, in another order than ``placed``'s, or padded at the
        edges of the step. Its operations have the names of computed values if they are asked to be ``named``, or once
        were: what is prepared then serves either way.
        """
        self._is_named |= named
        prepared = self._laid(layouts, placed)
        with prepared.module.context:
            return prepared.module.clone()

    def _laid(self, layouts: StepLayouts, placed: DeviceMesh) -> Prepared:
        """The module prepared for the constraints of a plan, with its layouts."""
        chosen = self.chosen(layouts, placed)
        prepared = self._with_constraints(chosen, placed)
        with prepared.module.context, ir.Location.unknown():
            self._over(prepared.module, placed)
            attributes = self.edges.attributes(chosen)
            for number, operation in prepared.constraints:
                operation.attributes["sharding"] = ranked(attributes[number], operation.results[0].type)
            self.lay_edges(prepared.main, layouts, placed)
        return prepared

    def graph(self, layouts: StepLayouts, placed: DeviceMesh, reading: Reading) -> Graph | None:
        """The graph that propagation over ``laid_out``'s module gives, found without Shardy; None where that is not
        known. ``reading`` is over the plan's mesh.
        """
        prepared, axes = self._laid(layouts, placed), tuple(placed.mesh.shape.items())
        with prepared.module.context:
            if not prepared.templates:
                prepared.templates.append(self._read(prepared.module, reading))
            (template,) = prepared.templates
            return None if template is None else spread_graph(template, prepared.main, self.lying(axes), reading)

    def lying(self, axes: tuple[tuple[str, int], ...]) -> Lying:
        """Layouts over a mesh of these axes."""
        if axes not in self._lying:
            self._lying = {axes: Lying(mesh=dict(axes), layouts=self.rules.layouts)}
        return self._lying[axes]

    def template(self, module: Any, reading: Reading) -> Template | None:
        """The template of a module that was prepared and split, as those of plans are; None where it is not known what
        the passes make of it.
        """
        self._forms.write(module)
        return self._read(module, reading)

    def _read(self, module: Any, reading: Reading) -> Template | None:
        names = {"names": self.paths, "result_names": tuple([each.path for each in self.traced.results])}
        return Template.read(module, reading, self.rules, self.passes, names)

    def _name(self, operation: Any) -> None:
        """Names what makes the value that has a place, as what a plan may name it by."""
        place, value = self.places[number_of(operation)], operation.operands[0]
        if self._is_carried(place):
            name_carried(value, place.path)
        elif place.path.startswith(OPS) and not place.is_operand:
            name_value(value, place.path)

    def _said_of_constraint(self, place: Place) -> str:
        """What the name of a constraint says besides its number, where what it makes has this place."""
        is_its_own = place.path.startswith(OPS) and not place.is_operand and not self._is_carried(place)
        return AND + place.path if is_its_own else ""

    def _is_carried(self, place: Place) -> bool:
        return self.values and place.path in self.traced.values.carried

    def chosen(self, layouts: StepLayouts, placed: DeviceMesh) -> dict[int, NamedSharding]:
        """The shardings that a plan gives to places, by their numbers, in order."""
        found: dict[int, NamedSharding] = {}
        for (has, shape), layout in (*layouts.resolution.layouts.items(), *_given_in_place(layouts)):
            numbers = self._numbers.get((has, shape))
            sharding = placed.sharding(layout, shape) if numbers else None
            if numbers and sharding is not None:
                found.update(dict.fromkeys(numbers, sharding))
        return dict(sorted(found.items()))

    def _with_constraints(self, chosen: Mapping[int, NamedSharding], placed: DeviceMesh) -> Prepared:
        """The module prepared with constraints in these places; kept, for any shardings as equal to one another."""
        alike: dict[NamedSharding, int] = {}
        pattern = tuple((number, alike.setdefault(sharding, len(alike))) for number, sharding in chosen.items())
        key = self._is_named, pattern
        if key not in self._prepared:
            copy = self._with_places(chosen.keys()).clone()
            with copy.context, ir.Location.unknown():
                self._over(copy, placed)
                self.edges.lay(main_function(copy), ARGUMENTS, self._open)
                self._constrain(copy, chosen)
                prepare(copy, tpu=self.platform == "tpu")
                split(copy)
                self._forms.write(copy)
                constraints = tuple(_numbered(copy)) if chosen else ()
                self._prepared[key] = Prepared(module=copy, main=main_function(copy), constraints=constraints)
        self._prepared.move_to_end(key)
        if len(self._prepared) > MAX_PREPARED:
            self._prepared.popitem(last=False)
        return self._prepared[key]

    def _constrain(self, module: Any, chosen: Mapping[int, NamedSharding]) -> None:
        """Puts constraints in these places, each with its number in its name, by which it is found again."""
        marked: dict[Any, str] = {}
        attributes = self.edges.attributes(chosen)
        for operation in list(places_of(module)):
            number, value = number_of(operation), operation.operands[0]
            if self._is_named and value not in marked:
                self._name(operation)
            elif self._is_named and AND not in marked[value]:
                marked[value] += self._said_of_constraint(self.places[number])
            name = str(number) if number in chosen else None
            made = resolve(operation, attributes.get(number), None if self._is_named else name)
            if name is not None and self._is_named:
                marked[made] = name
        for value, mark in marked.items():
            made = value.owner.operation
            made.location = with_names(without_names(made.location), [Name(0, mark)])

    def _with_places(self, numbers: AbstractSet[int]) -> Any:
        """The module with no places but these and those that were asked for before: most are never laid out.

        Where most are, for once, all are there, and with names the plans that follow lay out some of these.
        """
        if 2 * len(numbers) > len(self.places) and not numbers <= self._asked:
            self._most = frozenset(numbers)
            return self._module
        if not numbers <= self._asked or self._names_fewer != self._is_named:
            self._asked |= numbers | (self._most if self._is_named else frozenset())
            self._fewer, self._names_fewer = self._module.clone(), self._is_named
            with self._fewer.context:
                self._take_places(self._fewer)
        return self._fewer

    def _take_places(self, module: Any) -> None:
        """Takes the places out of a module that nobody asked for. Where values are named, those are whose places go,
        and what has a place beside one that stays keeps it: a constraint there would have the name.
        """
        asked = [(operation, number_of(operation) in self._asked) for operation in places_of(module)]
        kept = {placed_on(operation) for operation, is_asked in asked if is_asked and self._is_named}
        for operation, is_asked in asked:
            if not is_asked and (not kept or placed_on(operation) not in kept):
                if self._is_named:
                    self._name(operation)
                resolve(operation, None)

    def _over(self, module: Any, placed: DeviceMesh) -> None:
        """Makes the module's mesh that of a plan, where the step names none itself."""
        meshes = [op.operation for op in module.regions[0].blocks[0].operations if op.operation.name == "sdy.mesh"]
        axes = [sdy.MeshAxisAttr.get(name, size) for name, size in placed.mesh.shape.items()]
        for operation in meshes if self.is_layable else ():
            operation.attributes["mesh"] = sdy.MeshAttr.get(axes, [])

    def lay_edges(self, main: Any, layouts: StepLayouts, placed: DeviceMesh) -> None:
        """Lays out the arguments and results of a module as a plan says."""
        arguments = argument_leaves(layouts, placed)
        results = edge_shardings(layouts, placed, self.traced.results)
        self.edges.lay(main, ARGUMENTS, [arguments[i] for i in self._positions], self._given(results, placed))
        self.edges.lay(main, RESULTS, results)

    def _given(self, results: Sequence[NamedSharding | None], placed: DeviceMesh) -> Sequence[Given]:
        """What says of the arguments which are donated, and in whose place results are written."""
        known = tuple([sharding is not None or placed.mesh.size == 1 for sharding in results])
        if known not in self._gives:
            donated = [i in self._donated for i in self._positions]
            avals = [self.traced.jaxpr.in_avals[i] for i in self._positions]
            aliased, given = donations(avals, self.traced.jaxpr.out_avals, donated, known)
            outputs = [() if a is None else ((ALIASED, integer(a)),) for a in aliased]
            donors = [((DONATED, ir.BoolAttr.get(True)),) if g else () for g in given]
            self._gives[known] = [(*a, *g) for a, g in zip(outputs, donors, strict=True)]
        return self._gives[known]


def _mark(constraint: Any) -> str:
    """What a constraint's name says of it; nothing where it is JAX's own, as those of keys."""
    return next(iter(value_names_at(constraint.location).values()), "")


def _numbers(places: Sequence[Place]) -> dict[tuple[str | Assignment, tuple[int, ...]], list[int]]:
    """The numbers of places by what has them, a path or an assignment of the model's own, and its shape."""
    found: dict[tuple[str | Assignment, tuple[int, ...]], list[int]] = {}
    for number, place in enumerate(places):
        has = place.path if place.assignment is None else place.assignment
        found.setdefault((has, place.shape), []).append(number)
    return found


def _given_in_place(layouts: StepLayouts) -> Iterator[tuple[tuple[Assignment, tuple[int, ...]], Layout]]:
    """The layouts that the model gives itself, by assignment and shape."""
    return (((assignment, shape), layout) for (shape, assignment), layout in layouts.in_place.items())


def _numbered(module: Any) -> Iterator[tuple[int, Any]]:
    """The constraints of a prepared module with their numbers, which go from their names."""
    for operation in operations(module):
        if operation.name != CONSTRAINT:
            continue
        number, _, path = _mark(operation).partition(AND)
        if number.isdigit():
            operation.location = with_names(without_names(operation.location), [Name(0, path)] if path else [])
            yield int(number), operation


def _lays_out(equation: JaxprEqn) -> bool:
    """Whether an equation says on its own, for some mesh, how something is laid out."""
    said = (*equation.params.get("in_shardings", ()), *equation.params.get("out_shardings", ()))
    return equation.primitive.name in ("shard_map", "sharding_constraint") or any(
        isinstance(each, jax.sharding.Sharding) for each in said
    )


def _index(traced: Traced) -> dict[str, int]:
    return {tensor.path: i for i, tensor in enumerate(traced.arguments)}
