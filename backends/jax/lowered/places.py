"""Places in a step: operations that give back their operand, each where a plan may lay something out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jax._src.core import no_effects
from jax.extend.core import ClosedJaxpr, JaxprEqn, Primitive
from jax.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from ....dsl.plan import Assignment
from ..annotate import mark_p
from ..constrain import Region, rewrite
from ..trace import Traced, value_names
from ..values import carries, slices
from .edges import ranked
from .value_names import WHILE, Name, with_names, without_names

PLACE = "meshwright.place"
CONSTRAINT = "sdy.sharding_constraint"

place_p = Primitive("sharding_constraint")
"""Identity on one array, named in locations as what may come in its place. Parameter ``number``: which place it is."""


def _lower_place(_context: Any, x: Any, *, number: int) -> Any:
    operation = stablehlo.CustomCallOp([x.type], [x], call_target_name=ir.StringAttr.get(PLACE))
    operation.operation.attributes[PLACE] = ir.IntegerAttr.get(ir.IntegerType.get_signless(32), number)
    return operation.results


place_p.def_impl(lambda x, **_: x)
place_p.def_abstract_eval(lambda x, **_: x)
mlir.register_lowering(place_p, _lower_place, cacheable=False)  # no two places are alike


@dataclass(frozen=True, slots=True)
class Place:
    """What has a place: a value by its path and shape, or one that the model gives an ``assignment`` itself.

    ``is_operand`` says that it is a value only as one operation reads it.
    """

    path: str
    shape: tuple[int, ...]
    assignment: Assignment | None = None
    is_operand: bool = False


def with_places(traced: Traced, *, values: bool) -> tuple[ClosedJaxpr, tuple[Place, ...]]:
    """A step's jaxpr with places, and what has each, by its number. ``values``: computed values have some too."""
    name, numbers = value_names(traced.jaxpr.jaxpr), dict[Place, int]()

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
        found = traced.values.of_equation.get(id(equation), ())
        results = [(i, path, equation.outvars[i]) for i, path in found]
        return [(i, put(equation.replace(invars=[v], outvars=[v]), Place(p, _shape(v)))) for i, p, v in results]

    def read(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
        found = traced.values.read_by_equation.get(id(equation), ())
        operands: list[tuple[int, str, Any]] = [(i, path, equation.invars[i]) for i, path in found]
        places = [(i, Place(p, _shape(v), is_operand=True), v) for i, p, v in operands]
        return [(i, put(equation.replace(invars=[v], outvars=[v]), place)) for i, place, v in places]

    def turned(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
        found, inside = traced.values.turned_by_equation.get(id(equation), ()), slices(equation)
        read: list[tuple[int, str, Any]] = [(i, path, inside[i]) for i, path in found]
        return [(i, put(equation.replace(invars=[v], outvars=[v]), Place(p, _shape(v)))) for i, p, v in read]

    def entering(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
        inside = carries(equation)
        return [each for each in computed(equation) if each[0] in inside]

    beside = (computed, read, entering, turned) if values else ()
    jaxpr = rewrite(traced.jaxpr, named, *beside)
    return jaxpr, tuple(numbers)


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(variable.aval.shape)


def operations(operation: Any) -> Iterator[Any]:
    """The operations inside an operation, in program order."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                each = inner.operation
                yield each
                if len(each.regions):
                    yield from operations(each)


def places_of(module: Any) -> Iterator[Any]:
    """The places in a module."""
    return (op for op in operations(module) if op.name == "stablehlo.custom_call" and PLACE in op.attributes)


def has_place(operation: Any) -> bool:
    """Whether a result of an operation has a place."""
    return any(PLACE in use.owner.attributes for result in operation.results for use in result.uses)


def number_of(operation: Any) -> int:
    """The number of a place."""
    return int(operation.attributes[PLACE].value)


def placed_on(operation: Any) -> Any:
    """Which value has a place, maybe beside others; of what a loop carries its result. (MLIR's values keep their hash
    while they change, its operations do not.)
    """
    value = operation.operands[0]
    while not isinstance(value.owner, ir.Block) and PLACE in value.owner.attributes:
        value = value.owner.operands[0]
    if isinstance(value.owner, ir.Block) and value.owner.owner.name == WHILE:
        return value.owner.owner.operation.results[value.arg_number]
    return value


def resolve(operation: Any, attribute: Any, name: str | None = None) -> Any:
    """Puts a constraint of this ``sdy.sharding`` where an operation is, or what it is given (None); and gives that.

    The constraint has this ``name``, in place of names that are there.
    """
    value = operation.operands[0]
    if attribute is not None:
        location = operation.location
        made = ir.Operation.create(
            CONSTRAINT,
            results=[value.type],
            operands=[value],
            attributes={"sharding": ranked(attribute, value.type)},
            loc=location if name is None else with_names(without_names(location), [Name(0, name)]),
            ip=ir.InsertionPoint(operation),
        )
        value = made.results[0]
    operation.results[0].replace_all_uses_with(value)
    operation.erase()
    return value
