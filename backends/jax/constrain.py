"""Turns the names and verbs in a step's jaxpr into sharding constraints, and lays out what equations make.

The jaxpr is rewritten, not the model: so the layouts reach values inside scans, remat regions and nested jits, whether
named with ``tag`` or ``checkpoint_name`` or not at all, and no trace made under one plan is ever used under another.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding

from ...dsl.errors import Problem, listing, problem, raise_errors
from .axis_order import Order, at_its_own_place, in_order
from .values import carries, slices

Chooser = Callable[[JaxprEqn], NamedSharding | None]
Given = Callable[[JaxprEqn], Sequence[tuple[int, str, NamedSharding]]]
"""The results, or the operands, of an equation that are given shardings: position, path and sharding of each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """The part of a step inside a ``shard_map``: its mesh, whose manual axes no constraint can name."""

    mesh: AbstractMesh

    @property
    def manual(self) -> tuple[str, ...]:
        """The axes along which the region holds one device's values."""
        return tuple(self.mesh.manual_axes)

    @property
    def is_free(self) -> bool:
        """Whether something is left to split over."""
        return any(size > 1 for axis, size in self.mesh.shape.items() if axis not in self.manual)


Replace = Callable[[JaxprEqn, Region | None], JaxprEqn | None]
Beside = Callable[[JaxprEqn], Sequence[tuple[int, JaxprEqn]]]
"""The equations, of one operand and one result, that go with results or operands of an equation, by their position."""


def _nothing(_: JaxprEqn) -> Sequence[tuple[int, JaxprEqn]]:
    return ()


def constrain(
    closed: ClosedJaxpr, choose: Chooser, results: Given, operands: Given, turned: Given, order: Order
) -> ClosedJaxpr:
    """``closed`` with a sharding constraint in place of each equation for which ``choose`` gives a sharding.

    Another follows each of the ``results`` that have one, and precedes each of the ``operands``. What a loop carries
    has one on every turn too, and what its turns read of what a scan goes over (``turned``) as each of them begins.
    ``order`` is the order of axes that the program keeps to between them (``axis_order.py``).
    Raises ``PlanError`` (MW316) where a value inside a manual region would be split over the region's own axes.
    """
    problems: dict[str, Problem] = {}

    made = Constraints(order)

    def replace(equation: JaxprEqn, region: Region | None) -> JaxprEqn | None:
        sharding = choose(equation)
        if sharding is None or region is None:
            return None if sharding is None else _constraint(equation, sharding, made)
        taken = [axis for axis in _axes(sharding) if axis in region.manual or not region.is_free]
        if taken:
            path = f"acts/{equation.params['name'] or '<in place>'}"
            found = problem("MW316", path=path, manual=listing(region.manual), axes=listing(taken))
            problems[str(found)] = found
        return None if taken or not region.is_free else _constraint(equation, _inside(sharding, region), made)

    def follow(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
        given = equation.outvars
        return [(i, beside(equation, given[i], path, to, made)) for i, path, to in results(equation)]

    def precede(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
        read = equation.invars
        return [(i, beside(equation, read[i], path, to, made)) for i, path, to in operands(equation)]

    def enter(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
        inside, given = carries(equation), equation.outvars
        return [(i, beside(equation, given[i], path, to, made)) for i, path, to in results(equation) if i in inside]

    def begin(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
        read = slices(equation)
        return [(i, beside(equation, read[i], path, to, made)) for i, path, to in turned(equation)]

    rewritten = rewrite(closed, replace, follow, precede, enter, begin)
    raise_errors(problems.values())
    return rewritten


def _axes(sharding: NamedSharding) -> list[str]:
    entries = (entry if isinstance(entry, tuple) else (entry,) for entry in sharding.spec if entry is not None)
    return [axis for entry in entries for axis in entry]


def _inside(sharding: NamedSharding, region: Region) -> NamedSharding:
    """The sharding on the region's mesh, which knows what is manual, where that has the same axes."""
    same = dict(sharding.mesh.shape) == dict(region.mesh.shape)
    return NamedSharding(region.mesh, sharding.spec) if same else sharding


def rewrite(
    closed: ClosedJaxpr,
    replace: Replace,
    follow: Beside = _nothing,
    precede: Beside = _nothing,
    enter: Beside = _nothing,
    begin: Beside = _nothing,
) -> ClosedJaxpr:
    """``closed`` with the equation that ``replace`` gives in place of each, also in jaxprs inside; None keeps it.

    What ``follow`` gives for an equation of ``closed`` stands after it, and its results are read in place of the
    equation's own; what ``precede`` gives stands before it, and the equation reads its results. What ``enter`` gives
    for what a loop carries, by the number of the result that it ends as, begins each turn and ends it; what ``begin``
    gives for what a scan goes over, by the number of the operand, begins each turn.
    """
    return _Rewriter(replace, follow, precede, enter, begin).closed(closed)


class _Rewriter:
    """One pass over a jaxpr and those inside it; a jaxpr used twice is rewritten once and stays shared."""

    def __init__(
        self,
        replace: Replace,
        follow: Beside,
        precede: Beside,
        enter: Beside,
        begin: Beside,
        region: Region | None = None,
    ):
        self.replace = replace
        self.follow = follow
        self.precede = precede
        self.enter = enter
        self.begin = begin
        self.region = region
        self.done: dict[int, tuple[Any, Any]] = {}  # by id; the original is kept alive beside its rewriting

    def closed(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        if id(closed) not in self.done:
            inner = self.open(closed.jaxpr)
            self.done[id(closed)] = (closed, closed if inner is closed.jaxpr else closed.replace(jaxpr=inner))
        return self.done[id(closed)][1]  # type: ignore[no-any-return]

    def open(self, jaxpr: Jaxpr) -> Jaxpr:
        if id(jaxpr) not in self.done:
            equations = [each for e in jaxpr.eqns for each in self.equations(e)]
            same = len(equations) == len(jaxpr.eqns) and all(map(operator.is_, equations, jaxpr.eqns))
            self.done[id(jaxpr)] = (jaxpr, jaxpr if same else jaxpr.replace(eqns=equations))
        return self.done[id(jaxpr)][1]  # type: ignore[no-any-return]

    def equations(self, equation: JaxprEqn) -> list[JaxprEqn]:
        """What stands in the place of an equation: it, or another, with what goes before it and after."""
        rewritten, leaders, followers = self.equation(equation), self.precede(equation), self.follow(equation)
        if not leaders and not followers:
            return [rewritten]
        read, before = list(rewritten.invars), []
        for position, leader in leaders:
            new = Var(read[position].aval)
            before.append(leader.replace(invars=[read[position]], outvars=[new]))
            read[position] = new
        made, after = list(rewritten.outvars), []
        for position, follower in followers:
            new = Var(made[position].aval)
            after.append(follower.replace(invars=[new], outvars=[made[position]]))
            made[position] = new
        return [*before, rewritten.replace(invars=read, outvars=made), *after]

    def equation(self, equation: JaxprEqn) -> JaxprEqn:
        other = self.replace(equation, self.region)
        if other is not None:
            return other
        if equation.primitive.name == "shard_map":
            return self.manual(equation)
        params = {key: self.value(value) for key, value in equation.params.items()}
        inside = carries(equation)
        for number, same in self.enter(equation) if inside else ():
            key, position = inside[number]
            params[key] = _kept(params[key], position, number, same)
        for position, same in self.begin(equation):
            params["jaxpr"] = _begun(params["jaxpr"], position, same)
        unchanged = all(params[key] is value for key, value in equation.params.items())
        return equation if unchanged else equation.replace(params=params)

    def manual(self, equation: JaxprEqn) -> JaxprEqn:
        """A ``shard_map``, whose inside is a region of its own."""
        mesh = equation.params["mesh"]
        abstract = mesh.abstract_mesh if isinstance(mesh, Mesh) else mesh
        types = dict.fromkeys(equation.params["newly_manual_axes"], AxisType.Manual)
        region = Region(mesh=abstract.update_axis_types(types))
        inner = _Rewriter(self.replace, self.follow, self.precede, self.enter, self.begin, region).value(
            equation.params["jaxpr"]
        )
        return equation.replace(params=equation.params | {"jaxpr": inner})  # type: ignore[no-any-return]

    def value(self, value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, Jaxpr):
            return self.open(value)
        if isinstance(value, (tuple, list)) and any(isinstance(v, (ClosedJaxpr, Jaxpr)) for v in value):
            inner = [self.value(v) for v in value]
            return type(value)(*inner) if hasattr(value, "_fields") else type(value)(inner)
        return value


def _begun(closed: ClosedJaxpr, position: int, same: JaxprEqn) -> ClosedJaxpr:
    """A loop's body that begins with an equation on its argument of this position."""
    arguments = list(closed.jaxpr.invars)
    known, arguments[position] = arguments[position], Var(arguments[position].aval)
    equations = [same.replace(invars=[arguments[position]], outvars=[known]), *closed.jaxpr.eqns]
    return closed.replace(jaxpr=closed.jaxpr.replace(invars=arguments, eqns=equations))  # type: ignore[no-any-return]


def _kept(closed: ClosedJaxpr, position: int, number: int, same: JaxprEqn) -> ClosedJaxpr:
    """A loop's body that begins with an equation on its argument of this position, and ends with it on the result of
    this number.
    """
    begun = _begun(closed, position, same)
    results, equations = list(begun.jaxpr.outvars), list(begun.jaxpr.eqns)
    if not isinstance(results[number], Literal):
        made, results[number] = results[number], Var(results[number].aval)
        equations.append(same.replace(invars=[made], outvars=[results[number]]))
    jaxpr = begun.jaxpr.replace(outvars=results, eqns=equations)
    return begun.replace(jaxpr=jaxpr)  # type: ignore[no-any-return]


def _constraint(equation: JaxprEqn, sharding: NamedSharding, made: Constraints) -> JaxprEqn:
    """The equation of ``with_sharding_constraint`` on the same operand, in the place of ``equation``."""
    constraint = made.of(equation.invars[0].aval, sharding)
    return _named(equation).replace(  # type: ignore[no-any-return]
        primitive=constraint.primitive, params=constraint.params
    )


def beside(equation: JaxprEqn, variable: Any, path: str, sharding: NamedSharding, made: Constraints) -> JaxprEqn:
    """The equation of ``with_sharding_constraint`` on a result or an operand called ``path``, written where the
    equation was.
    """
    info = equation.source_info
    return made.of(variable.aval, sharding).replace(  # type: ignore[no-any-return]
        source_info=info.replace(name_stack=info.name_stack.extend(path))
    )


class Constraints:
    """Equations of ``with_sharding_constraint``, traced once for all values of one shape and sharding."""

    def __init__(self, order: Order):
        self._order = order
        self._known: dict[Any, JaxprEqn] = {}

    def of(self, aval: Any, sharding: NamedSharding) -> JaxprEqn:
        """The equation; where the sharding is out of order that of a call with a reshard before and after."""
        key = (aval.shape, aval.dtype, sharding)
        if key not in self._known:
            self._known[key] = self._traced(aval, sharding)
        return self._known[key]

    def _traced(self, aval: Any, sharding: NamedSharding) -> JaxprEqn:
        abstract = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
        with jax.sharding.use_abstract_mesh(sharding.mesh.abstract_mesh):
            plain = in_order(sharding, self._order) is None
            place = functools.partial(at_its_own_place, sharding=sharding, order=self._order)
            traced = jax.make_jaxpr(place if plain else jax.jit(place))(abstract)
        (constraint,) = traced.jaxpr.eqns
        return constraint  # type: ignore[no-any-return]


def _named(equation: JaxprEqn) -> JaxprEqn:
    """The equation with the value's name as a plan has it at the end of its name stack, to be seen in programs."""
    name, info = equation.params.get("name"), equation.source_info
    if name is None:
        return equation
    return equation.replace(  # type: ignore[no-any-return]
        source_info=info.replace(name_stack=info.name_stack.extend(f"acts/{name}"))
    )
