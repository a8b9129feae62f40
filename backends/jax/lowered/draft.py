"""A step lowered once, before any plan, to be laid out many times: every value that a plan can name has a place in it.

A place is an operation that gives back its operand. A plan's layouts turn some into sharding constraints, and the rest
go: what is left is the module that lowering the step under that plan would give.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax._src.core import no_effects
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive, jaxpr_as_fun
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import sdy, stablehlo

from ....dsl.plan import Assignment
from ....dsl.rule_matches import OPS
from ..annotate import mark_p
from ..constrain import Region, rewrite
from ..layouts import StepLayouts
from ..planned import PLATFORMS, argument_shardings, edge_shardings
from ..shardings import DeviceMesh
from ..trace import Traced, equations, value_names
from .donation import donations
from .propagation import main_function, prepare
from .step_graph import argument_paths
from .value_names import name_value, without_names
from .value_names import value_names as value_names_at

PLACE = "meshwright.place"
MAX_PREPARED = 8

place_p = Primitive("sharding_constraint")
"""Identity on one array, named in locations as what may come in its place. Parameter ``number``: which place it is."""


def _lower_place(_context: Any, x: Any, *, number: int) -> Any:
    operation = stablehlo.CustomCallOp([x.type], [x], call_target_name=ir.StringAttr.get(PLACE))
    operation.operation.attributes[PLACE] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), number)
    return operation.results


place_p.def_impl(lambda x, **_: x)
place_p.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(place_p, _lower_place)


@dataclass(frozen=True, slots=True)
class Place:
    """What has a place: a value by its path and shape, or one that the model gives an ``assignment`` itself.

    ``is_operand`` says that it is a value only as one operation reads it.
    """

    path: str
    shape: tuple[int, ...]
    assignment: Assignment | None = None
    is_operand: bool = False


class Draft:
    """A step's module with its places. ``values`` is whether computed values (``ops/``) have places too.

    ``donated`` are the numbers of the donated arguments, leaves of the pytrees. ``is_layable`` says whether the module
    can be laid out as a plan says: not where the step itself names a mesh, or orders effects.
    """

    def __init__(self, traced: Traced, donated: Sequence[int], placed: DeviceMesh, platform: str, *, values: bool):
        self.traced = traced
        self.values = values
        self.platform = platform
        self.places: tuple[Place, ...] = ()
        self._prepared: OrderedDict[Hashable, Any] = OrderedDict()
        self._donated = frozenset(donated)
        self._lowered = self._lower(placed)
        self._module = self._lowered.compiler_ir("stablehlo").operation
        with self._module.context:
            main = main_function(self._module)
            paths = argument_paths(main.regions[0].blocks[0], traced)
        self._positions = [_index(traced)[path] for path in paths if path in _index(traced)]
        self.is_layable = len(self._positions) == len(paths) and not any(map(_lays_out, equations(traced.jaxpr.jaxpr)))

    def _lower(self, placed: DeviceMesh) -> Any:
        jaxpr, traced = self._with_places(), self.traced
        run = jaxpr_as_fun(jaxpr)

        def step(*args: Any) -> Any:
            return jax.tree.unflatten(traced.out_tree, run(*jax.tree.leaves(args)))

        step.__name__ = getattr(traced.step, "__name__", "step")
        avals = [jax.ShapeDtypeStruct(aval.shape, aval.dtype) for aval in traced.jaxpr.in_avals]
        args = jax.tree.unflatten(traced.in_tree, avals)
        whole = NamedSharding(placed.mesh, PartitionSpec())
        jitted = jax.jit(step, in_shardings=whole)
        return jitted.trace(*args).lower(lowering_platforms=(PLATFORMS[self.platform],))

    def _with_places(self) -> ClosedJaxpr:
        name, numbers = value_names(self.traced.jaxpr.jaxpr), dict[Place, int]()

        def put(equation: JaxprEqn, place: Place) -> JaxprEqn:
            info = equation.source_info
            stack = info.name_stack.extend(place.path) if place.path else info.name_stack
            return equation.replace(  # type: ignore[no-any-return]
                primitive=place_p,
                params={"number": numbers.setdefault(place, len(numbers))},
                effects=no_effects,
                source_info=info.replace(name_stack=stack),
            )

        def named(equation: JaxprEqn, region: Region | None) -> JaxprEqn | None:
            called = name(equation) if region is None else None
            if called is not None:
                return put(equation, Place(f"acts/{called}", _shape(equation.outvars[0])))
            if region is None and equation.primitive is mark_p and equation.params["assignment"] is not None:
                return put(equation, Place("", _shape(equation.outvars[0]), equation.params["assignment"]))
            return None

        def computed(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
            found = self.traced.values.of_equation.get(id(equation), ())
            results = [(i, path, equation.outvars[i]) for i, path in found]
            return [(i, put(equation.replace(invars=[v], outvars=[v]), Place(p, _shape(v)))) for i, p, v in results]

        def read(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
            found = self.traced.values.read_by_equation.get(id(equation), ())
            operands: list[tuple[int, str, Any]] = [(i, path, equation.invars[i]) for i, path in found]
            places = [(i, Place(p, _shape(v), is_operand=True), v) for i, p, v in operands]
            return [(i, put(equation.replace(invars=[v], outvars=[v]), place)) for i, place, v in places]

        beside = (computed, read) if self.values else ()
        jaxpr = rewrite(self.traced.jaxpr, named, *beside)
        self.places = tuple(numbers)
        return jaxpr

    def unlaid(self, layouts: StepLayouts, placed: DeviceMesh) -> Any:
        """The module prepared for propagation, laid out as ``layouts`` say of places but not of arguments and results.

        Its operations have the names of computed values.
        """
        chosen, copy = self.chosen(layouts, placed), self._module.clone()
        with copy.context, ir.Location.unknown():
            self._over(copy, placed)
            main = main_function(copy)
            _set_edges(main, "arg_attrs", [None] * len(self._positions))
            self._donate(main, [NamedSharding(placed.mesh, PartitionSpec())] * len(self.traced.results), placed)
            for operation in list(_places(copy)):
                place = self.places[_number(operation)]
                if place.path.startswith(OPS) and not place.is_operand:
                    name_value(operation.operands[0], place.path)
                _resolve(operation, chosen.get(_number(operation)))
            prepare(copy, tpu=self.platform == "tpu")
        return copy

    def laid_out(self, layouts: StepLayouts, placed: DeviceMesh) -> Any:
        """The module as lowering under a plan would give it, prepared for propagation.

        Nothing may be laid out with other axes than the mesh's, in another order than ``placed``'s, or padded at the
        edges of the step.
        """
        chosen = self.chosen(layouts, placed)
        copy = self._with_constraints(chosen, placed).clone()
        with copy.context, ir.Location.unknown():
            self._over(copy, placed)
            for operation in operations(copy):
                if operation.name == "sdy.sharding_constraint":
                    (mark,) = value_names_at(operation.location).values()
                    operation.attributes["sharding"] = sharding_attribute(chosen[int(mark)])
                    operation.location = without_names(operation.location)
            self._lay_edges(main_function(copy), layouts, placed)
        return copy

    def named(self, layouts: StepLayouts, placed: DeviceMesh) -> Any:
        """The module of ``laid_out``, whose operations have the names of computed values besides."""
        module = self.unlaid(layouts, placed)
        with module.context, ir.Location.unknown():
            self._lay_edges(main_function(module), layouts, placed)
        return module

    def chosen(self, layouts: StepLayouts, placed: DeviceMesh) -> dict[int, NamedSharding]:
        """The shardings that a plan gives to places, by their numbers."""
        found = {}
        for number, place in enumerate(self.places):
            if place.assignment is not None:
                layout = layouts.in_place.get((place.shape, place.assignment))
            else:
                layout = layouts.resolution.layouts.get((place.path, place.shape))
            sharding = placed.sharding(layout, place.shape) if layout is not None else None
            if sharding is not None:
                found[number] = sharding
        return found

    def _with_constraints(self, chosen: Mapping[int, NamedSharding], placed: DeviceMesh) -> Any:
        """The module prepared with constraints in these places; kept, for any shardings as equal to one another."""
        alike: dict[NamedSharding, int] = {}
        key = tuple((number, alike.setdefault(sharding, len(alike))) for number, sharding in chosen.items())
        if key not in self._prepared:
            copy = self._module.clone()
            with copy.context, ir.Location.unknown():
                self._over(copy, placed)
                _set_edges(main_function(copy), "arg_attrs", [None] * len(self._positions))
                for operation in list(_places(copy)):
                    number = _number(operation)
                    value = _resolve(operation, chosen.get(number))
                    if number in chosen:
                        name_value(value, str(number))  # by which the constraint is found again
                prepare(copy, tpu=self.platform == "tpu")
            self._prepared[key] = copy
        self._prepared.move_to_end(key)
        if len(self._prepared) > MAX_PREPARED:
            self._prepared.popitem(last=False)
        return self._prepared[key]

    def _over(self, module: Any, placed: DeviceMesh) -> None:
        """Makes the module's mesh that of a plan, where the step names none itself."""
        meshes = [op.operation for op in module.regions[0].blocks[0].operations if op.operation.name == "sdy.mesh"]
        axes = [sdy.MeshAxisAttr.get(name, size) for name, size in placed.mesh.shape.items()]
        for operation in meshes if self.is_layable else ():
            operation.attributes["mesh"] = sdy.MeshAttr.get(axes, [])

    def _lay_edges(self, main: Any, layouts: StepLayouts, placed: DeviceMesh) -> None:
        """Lays out the arguments and results of a module as a plan says."""
        arguments = self.traced.in_tree.flatten_up_to(argument_shardings(layouts, placed))  # modules hold None too
        results = edge_shardings(layouts, placed, self.traced.results)
        _set_edges(main, "arg_attrs", [arguments[i] for i in self._positions])
        _set_edges(main, "res_attrs", results)
        self._donate(main, results, placed)

    def _donate(self, main: Any, results: Sequence[NamedSharding | None], placed: DeviceMesh) -> None:
        donated = [i in self._donated for i in self._positions]
        avals = [self.traced.jaxpr.in_avals[i] for i in self._positions]
        aliased, given = donations(avals, self.traced.jaxpr.out_avals, donated, results, placed.mesh.size)
        _update(main, "arg_attrs", "tf.aliasing_output", [None if a is None else _integer(a) for a in aliased])
        _update(main, "arg_attrs", "jax.buffer_donor", [ir.BoolAttr.get(True) if g else None for g in given])


def sharding_attribute(sharding: NamedSharding) -> Any:
    """A sharding as Shardy's attribute, on the mesh that the module has."""
    entries = (e if isinstance(e, tuple) else () if e is None else (e,) for e in sharding.spec)
    dims = [sdy.DimensionShardingAttr.get([sdy.AxisRefAttr.get(a) for a in axes], is_closed=True) for axes in entries]
    return sdy.TensorShardingAttr.get("mesh", dims)


def _lays_out(equation: JaxprEqn) -> bool:
    """Whether an equation says on its own, for some mesh, how something is laid out."""
    said = (*equation.params.get("in_shardings", ()), *equation.params.get("out_shardings", ()))
    return equation.primitive.name in ("shard_map", "sharding_constraint") or any(
        isinstance(each, jax.sharding.Sharding) for each in said
    )


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(variable.aval.shape)


def _index(traced: Traced) -> dict[str, int]:
    return {tensor.path: i for i, tensor in enumerate(traced.arguments)}


def operations(operation: Any) -> Iterator[Any]:
    """The operations inside an operation, in program order."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from operations(inner.operation)


def _places(module: Any) -> Iterator[Any]:
    return (op for op in operations(module) if op.name == "stablehlo.custom_call" and PLACE in op.attributes)


def _number(operation: Any) -> int:
    return int(operation.attributes[PLACE].value)


def _integer(value: int) -> Any:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(32), value)


def _resolve(operation: Any, sharding: NamedSharding | None) -> Any:
    """Puts a sharding constraint where an operation is, or else what it is given; and gives that."""
    value = operation.operands[0]
    if sharding is not None:
        with ir.InsertionPoint(operation), operation.location:
            value = sdy.ShardingConstraintOp(value, sharding_attribute(sharding)).result
    operation.results[0].replace_all_uses_with(value)
    operation.erase()
    return value


def _set_edges(main: Any, table: str, shardings: Sequence[NamedSharding | None]) -> None:
    _update(main, table, "sdy.sharding", [None if s is None else sharding_attribute(s) for s in shardings])


def _update(main: Any, table: str, name: str, attributes: Sequence[Any]) -> None:
    """Sets an attribute of each argument or result of a function; None takes it away."""
    said = [{each.name: each.attr for each in given} for given in main.attributes[table]]
    for given, attribute in zip(said, attributes, strict=True):
        given.pop(name, None)
        if attribute is not None:
            given[name] = attribute
    main.attributes[table] = ir.ArrayAttr.get([ir.DictAttr.get(given) for given in said])
