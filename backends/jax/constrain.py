"""Turns the names and verbs in a step's jaxpr into sharding constraints.

The jaxpr is rewritten, not the model: so the layouts reach values inside scans, remat regions and nested jits, whether
named with ``tag`` or ``checkpoint_name``, and no trace made under one plan is ever used under another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn
from jax.sharding import NamedSharding

Chooser = Callable[[JaxprEqn], NamedSharding | None]


def constrain(closed: ClosedJaxpr, choose: Chooser) -> ClosedJaxpr:
    """``closed`` with a sharding constraint in place of each equation for which ``choose`` gives a sharding."""
    return _Rewriter(choose).closed(closed)


class _Rewriter:
    """One pass over a jaxpr and those inside it; a jaxpr used twice is rewritten once and stays shared."""

    def __init__(self, choose: Chooser):
        self.choose = choose
        self.done: dict[int, tuple[Any, Any]] = {}  # by id; the original is kept alive beside its rewriting

    def closed(self, closed: ClosedJaxpr) -> ClosedJaxpr:
        if id(closed) not in self.done:
            inner = self.open(closed.jaxpr)
            self.done[id(closed)] = (closed, closed if inner is closed.jaxpr else closed.replace(jaxpr=inner))
        return self.done[id(closed)][1]  # type: ignore[no-any-return]

    def open(self, jaxpr: Jaxpr) -> Jaxpr:
        if id(jaxpr) not in self.done:
            equations = [self.equation(e) for e in jaxpr.eqns]
            same = all(a is b for a, b in zip(equations, jaxpr.eqns, strict=True))
            self.done[id(jaxpr)] = (jaxpr, jaxpr if same else jaxpr.replace(eqns=equations))
        return self.done[id(jaxpr)][1]  # type: ignore[no-any-return]

    def equation(self, equation: JaxprEqn) -> JaxprEqn:
        sharding = self.choose(equation)
        if sharding is not None:
            return _constraint(equation, sharding)
        params = {key: self.value(value) for key, value in equation.params.items()}
        same = all(params[key] is value for key, value in equation.params.items())
        return equation if same else equation.replace(params=params)

    def value(self, value: Any) -> Any:
        if isinstance(value, ClosedJaxpr):
            return self.closed(value)
        if isinstance(value, Jaxpr):
            return self.open(value)
        if isinstance(value, (tuple, list)) and any(isinstance(v, (ClosedJaxpr, Jaxpr)) for v in value):
            return type(value)(self.value(v) for v in value)
        return value


def _constraint(equation: JaxprEqn, sharding: NamedSharding) -> JaxprEqn:
    """The equation of ``with_sharding_constraint`` on the same operand, in the place of ``equation``."""
    aval: Any = equation.invars[0].aval
    abstract = jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    traced = jax.make_jaxpr(lambda x: jax.lax.with_sharding_constraint(x, sharding))(abstract)
    (constraint,) = traced.jaxpr.eqns
    return equation.replace(primitive=constraint.primitive, params=constraint.params)  # type: ignore[no-any-return]
