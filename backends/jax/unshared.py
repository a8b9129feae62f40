"""Calls of a library's small jitted functions, such as ``jnp.var``, each with a jaxpr of its own.

JAX traces such a function once for all that call it alike. What it computes could have no path then: a plan would lay
it out in all calls or in none. What is computed stays the same: the compiler puts every function in place of its calls,
small ones before it partitions them, and so those that are called once.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from jax._src.core import DropVar
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Var

from .constrain import rewrite
from .program.hlo_source import is_internal
from .values import ENTERED, JITTED, each_jaxpr
from .written import Written

MOST = 20
"""A function of more equations, those of what it calls among them, stays shared."""


def unshared(closed: ClosedJaxpr) -> ClosedJaxpr:
    """A jaxpr in which no two calls share what a library's small function computes."""
    every = [e for jaxpr in each_jaxpr(closed.jaxpr) for e in jaxpr.eqns]
    uses = Counter(id(called.jaxpr) for e in every if (called := _called(e)) is not None)
    written = Written()

    def is_copied(called: ClosedJaxpr) -> bool:
        return uses[id(called.jaxpr)] > 1 and _size(called.jaxpr) <= MOST and _is_plain(called.jaxpr, written)

    def replace(equation: JaxprEqn, _: Any) -> JaxprEqn | None:
        called = _called(equation)
        if called is None or not is_copied(called):
            return None
        return _with(equation, _copied(called))

    return rewrite(closed, replace)


def _called(equation: JaxprEqn) -> ClosedJaxpr | None:
    called = equation.params.get("jaxpr") if equation.primitive.name in JITTED else None
    return called if isinstance(called, ClosedJaxpr) else None


def _size(jaxpr: Jaxpr) -> int:
    """The equations of a function and of those that it calls."""
    return len(jaxpr.eqns) + sum(_size(each.jaxpr) for each in map(_called, jaxpr.eqns) if each is not None)


def _is_plain(jaxpr: Jaxpr, written: Written) -> bool:
    """Whether a function is a library's, and enters nothing but jitted ones that are. Where what it computes is traced
    anew, in blocks that are computed anew, it seems to be written by the user.
    """
    inside = [_called(each) for each in jaxpr.eqns if each.primitive.name in ENTERED]
    is_library = written.is_library(jaxpr) or is_internal(jaxpr.debug_info.func_filename or "")
    return is_library and all(each is not None and _is_plain(each.jaxpr, written) for each in inside)


def _with(equation: JaxprEqn, called: ClosedJaxpr) -> JaxprEqn:
    return equation.replace(params=equation.params | {"jaxpr": called})  # type: ignore[no-any-return]


def _copied(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same with equations and variables of its own."""
    own: dict[Any, Any] = {}

    def made(variable: Any) -> Any:
        own[variable] = DropVar(variable.aval) if isinstance(variable, DropVar) else Var(variable.aval)
        return own[variable]

    def copy(equation: JaxprEqn) -> JaxprEqn:
        read = [own.get(v, v) if isinstance(v, Var) else v for v in equation.invars]
        called = _called(equation)
        again = equation if called is None else _with(equation, _copied(called))
        return again.replace(invars=read, outvars=[made(v) for v in equation.outvars])  # type: ignore[no-any-return]

    jaxpr: Jaxpr = closed.jaxpr
    constants, arguments = ([made(v) for v in each] for each in (jaxpr.constvars, jaxpr.invars))
    equations = [copy(each) for each in jaxpr.eqns]
    results = [own.get(v, v) if isinstance(v, Var) else v for v in jaxpr.outvars]
    made_of = jaxpr.replace(constvars=constants, invars=arguments, eqns=equations, outvars=results)
    return ClosedJaxpr(made_of, closed.consts)
