"""Calls that hold several layers, as of a jitted loss, with what they call in their place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from ..trace import equations
from ..values import direction
from .layers import FEWEST

CALLS = ("jit", "pjit", "closed_call", "core_call")
"""The calls that mean no more than what they call."""


def without_calls(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A jaxpr with the equations of calls in their place, where these read or make as much as several layers.

    Those of which there are several stay: a layer's own. What calls lay out themselves stays too.
    """
    used = Counter(id(called.jaxpr) for e in equations(closed.jaxpr) if (called := _called(e)) is not None)
    opener = _Opener(used)
    found = list(opener.equations(closed.jaxpr))
    if not opener.calls:
        return closed
    said = closed.jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    jaxpr = closed.jaxpr.replace(
        eqns=found,
        constvars=[*closed.jaxpr.constvars, *opener.constants],
        outvars=[opener.read(variable) for variable in closed.jaxpr.outvars],
        debug_info=said,
    )
    return ClosedJaxpr(jaxpr, [*closed.consts, *opener.constants.values()])


class _Opener:
    """Puts what calls compute in their place. ``calls`` are those opened, ``constants`` what they know."""

    def __init__(self, used: Counter[int]):
        self.used = used
        self.calls: list[JaxprEqn] = []
        self.constants: dict[Any, Any] = {}
        self._stands_for: dict[Any, Any] = {}

    def read(self, variable: Any) -> Any:
        """What is read in the place of a variable."""
        return variable if isinstance(variable, Literal) else self._stands_for.get(variable, variable)

    def equations(self, jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
        """The equations of a jaxpr, those of calls in their place."""
        for equation in jaxpr.eqns:
            operands = [self.read(variable) for variable in equation.invars]
            called = _called(equation)
            if called is None or not self._is_open(equation, called):
                same = all(a is b for a, b in zip(operands, equation.invars, strict=True))
                yield equation if same else equation.replace(invars=operands)
                continue
            self.calls.append(equation)
            self.constants |= dict(zip(called.jaxpr.constvars, called.consts, strict=True))
            self._stands_for |= dict(zip(called.jaxpr.invars, operands, strict=True))
            for inner in self.equations(called.jaxpr):
                yield _within(equation, inner)
            results = [self.read(variable) for variable in called.jaxpr.outvars]
            self._stands_for |= dict(zip(equation.outvars, results, strict=True))

    def _is_open(self, equation: JaxprEqn, called: ClosedJaxpr) -> bool:
        said = (*equation.params.get("in_shardings", ()), *equation.params.get("out_shardings", ()))
        lays_out = any(isinstance(each, jax.sharding.Sharding) for each in said)
        is_wide = max(len(equation.invars), len(equation.outvars)) >= FEWEST
        return is_wide and self.used[id(called.jaxpr)] == 1 and not lays_out


def _called(equation: JaxprEqn) -> ClosedJaxpr | None:
    """What a call calls; None for any other equation."""
    name = "jaxpr" if "jaxpr" in equation.params else "call_jaxpr"
    called = equation.params.get(name) if equation.primitive.name in CALLS else None
    return called if isinstance(called, ClosedJaxpr) else None


def _within(call: JaxprEqn, equation: JaxprEqn) -> JaxprEqn:
    """An equation as it stands in a call: of the same direction, if it has none of its own."""
    info = equation.source_info
    if direction(str(info.name_stack)) or not direction(str(call.source_info.name_stack)):
        return equation
    stack = call.source_info.name_stack + info.name_stack
    return equation.replace(source_info=info.replace(name_stack=stack))  # type: ignore[no-any-return]
