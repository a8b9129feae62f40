"""Which computed values have several names: a tag's path and the paths of what it names speak of the same values, a
call's and those of what it calls too. What the model itself lays out has its layout by such a path.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from jax.extend.core import JaxprEqn, Literal
from jax.sharding import NamedSharding

from ...dsl.tensors import Layout
from ...planner.graph import Sharding
from .annotate import mark_p
from .trace import Traced, equations, value_names
from .values import CALLS, SAME, each_jaxpr, inner_jaxprs

CONSTRAINT = "sharding_constraint"


def tag_values(traced: Traced) -> Mapping[str, tuple[str, ...]]:
    """By the path of each tag (``acts/...``), the paths of the values (``ops/...``) that it names, gradients too.

    A tag that somewhere names what has no path, such as an argument, is left out.
    """
    name, paths = value_names(traced.jaxpr.jaxpr), _Paths(traced)
    found: dict[str, dict[str, None]] = {}
    unknown: set[str] = set()
    for equation in paths.equations:
        called = name(equation)
        if called is None:
            continue
        path = paths.of(equation.invars[0])
        if path is None:
            unknown.add(f"acts/{called}")
        else:
            found.setdefault(f"acts/{called}", {})[path] = None
    return {tag: tuple(values) for tag, values in found.items() if tag not in unknown}


def call_values(traced: Traced) -> Mapping[str, str]:
    """By the path of what a call gives, that of what is computed in it, where the graph knows the value by that."""
    paths = _Paths(traced)
    found = ((path, paths.of(variable)) for variable, path in traced.values.of_variable.items())
    return {path: inside for path, inside in found if inside is not None and inside != path}


def lays_out(traced: Traced) -> bool:
    """Whether the model itself says of some of its values how they lie."""
    constrained = (e.primitive.name == CONSTRAINT for e in equations(traced.jaxpr.jaxpr))
    return bool(traced.in_place) or any(constrained)


def given_values(traced: Traced, in_place: Mapping[Any, Layout]) -> Mapping[str, Sharding]:
    """How values lie that the model itself lays out, by their paths: by its verbs, whose layouts are ``in_place`` by
    shape and assignment, and by ``with_sharding_constraint``.

    Of what others read besides, it is said how products read it. What may be padded or is open in some dim is left out,
    and so is what is given several layouts.
    """
    paths = _Paths(traced)
    found: dict[str, Sharding] = {}
    several: set[str] = set()
    for equation in paths.equations:
        given = _given(equation, in_place)
        if given is not None:
            paths_of_it = paths.laid_out_by(equation)
            several |= {path for path in paths_of_it if found.setdefault(path, given) != given}
    return {path: given for path, given in found.items() if path not in several}


def _given(equation: JaxprEqn, in_place: Mapping[Any, Layout]) -> Sharding | None:
    """The layout that an equation of the model's own gives; None where it gives none, or not one in all dims."""
    params = equation.params
    made: Any = equation.outvars[0].aval
    if equation.primitive is mark_p and params["name"] is None:
        layout = in_place.get((tuple(made.shape), params["assignment"]))
        return layout.axes if layout is not None and layout.how == "split" and not layout.padded else None
    if equation.primitive.name != CONSTRAINT or not isinstance(params["sharding"], NamedSharding):
        return None
    if params["unconstrained_dims"]:
        return None
    shape, sharding = made.shape, params["sharding"]
    axes = tuple(_axes(entry) for entry in (*sharding.spec, *(None,) * (len(shape) - len(sharding.spec))))
    parts = [math.prod(sharding.mesh.shape[axis] for axis in each) for each in axes]
    divides = all(size % part == 0 for size, part in zip(shape, parts, strict=True))
    return axes if divides else None


def _axes(entry: Any) -> tuple[str, ...]:
    return () if entry is None else entry if isinstance(entry, tuple) else (entry,)


class _Paths:
    """The paths by which the graph knows values: what only passes one on gives the same, a call what is computed in
    it, as ``jax.nn.relu`` does, unless several calls compute that.
    """

    def __init__(self, traced: Traced):
        jaxprs = [*each_jaxpr(traced.jaxpr.jaxpr)]
        self.equations = [equation for jaxpr in jaxprs for equation in jaxpr.eqns]
        self._results = [variable for jaxpr in jaxprs for variable in jaxpr.outvars]
        self._values = traced.values
        self._makers = {
            variable: (equation, position)
            for equation in self.equations
            for position, variable in enumerate(equation.outvars)
        }

    def of(self, variable: Any) -> str | None:
        """The path of what a variable holds; None where it has none."""
        maker = None if isinstance(variable, Literal) else self._makers.get(variable)
        if maker is None:
            return None
        equation, position = maker
        if equation.primitive.name in SAME:
            return self.of(equation.invars[0])
        return self._inside(equation, position) or self._values.of_variable.get(variable)

    @cached_property
    def _readers(self) -> Mapping[Any, list[JaxprEqn]]:
        """The equations that read a variable."""
        found: dict[Any, list[JaxprEqn]] = {}
        for equation in self.equations:
            for variable in dict.fromkeys(v for v in equation.invars if not isinstance(v, Literal)):
                found.setdefault(variable, []).append(equation)
        return found

    @cached_property
    def _reads(self) -> Counter[Any]:
        """How often variables are read, or returned."""
        read = (variable for equation in self.equations for variable in equation.invars)
        return Counter(variable for variable in (*read, *self._results) if not isinstance(variable, Literal))

    def laid_out_by(self, equation: JaxprEqn) -> list[str]:
        """The paths of what an equation that lays something out reads, or else of what products read of it."""
        path = self.of(equation.invars[0])
        if path is not None and self.is_read_once(equation.invars[0]):
            return [path]
        made = equation.outvars[0]
        read = self._values.read_by_equation
        readers = self._readers.get(made, ())
        return [path for e in readers for position, path in read.get(id(e), ()) if e.invars[position] is made]

    def is_read_once(self, variable: Any) -> bool:
        """Whether nothing else reads what a variable holds, under no other name either."""
        if isinstance(variable, Literal) or self._reads[variable] != 1:
            return False
        equation, position = self._makers.get(variable, (None, 0))
        if equation is None:
            return True
        if equation.primitive.name in SAME:
            return self.is_read_once(equation.invars[0])
        called = next(inner_jaxprs(equation), None) if equation.primitive.name in CALLS else None
        return called is None or self.is_read_once(called.outvars[position])

    def _inside(self, equation: JaxprEqn, position: int) -> str | None:
        """The path of a call's result inside of it."""
        called = next(inner_jaxprs(equation), None) if equation.primitive.name in CALLS else None
        path = None if called is None else self.of(called.outvars[position])
        return None if path in self._values.shared else path
