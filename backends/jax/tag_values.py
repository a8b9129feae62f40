"""Which computed values have several names: a tag's path and the paths of what it names speak of the same values, a
call's and those of what it calls too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.extend.core import JaxprEqn, Literal

from .trace import Traced, value_names
from .values import CALLS, SAME, each_jaxpr, inner_jaxprs


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


class _Paths:
    """The paths by which the graph knows values: what only passes one on gives the same, a call what is computed in
    it, as ``jax.nn.relu`` does, unless several calls compute that.
    """

    def __init__(self, traced: Traced):
        self.equations = [equation for jaxpr in each_jaxpr(traced.jaxpr.jaxpr) for equation in jaxpr.eqns]
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

    def _inside(self, equation: JaxprEqn, position: int) -> str | None:
        """The path of a call's result inside of it."""
        called = next(inner_jaxprs(equation), None) if equation.primitive.name in CALLS else None
        path = None if called is None else self.of(called.outvars[position])
        return None if path in self._values.shared else path
