"""Keeps a product apart from the one that alone reads it, on TPUs.

The TPU compiler computes a product that only another reads inside of that, anew for every window that the second goes
through: seen to take up to ten times as long, for no less memory at the peak. Behind a barrier it is written once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params, subjaxprs

from .constrain import rewrite

APART = (
    "Products that only another product reads end at a barrier: the TPU compiler would compute them inside of that, "
    "again and again. Nothing that is computed changes."
)
PRODUCTS = frozenset(("dot_general", "conv_general_dilated"))
MOVES = frozenset(("transpose", "reshape", "squeeze", "convert_element_type", "sharding_constraint"))
CALLS = frozenset(("jit", "pjit", "closed_call", "custom_jvp_call", "custom_vjp_call"))
ELEMENTWISE_NAMES = """
abs add add_any clamp copy cos div erf exp integer_pow log logistic max min mul neg pow rsqrt select_n sign sin sqrt
square sub tanh
"""
ELEMENTWISE = frozenset(ELEMENTWISE_NAMES.split())


def with_products_apart(closed: ClosedJaxpr) -> ClosedJaxpr:
    """``closed`` with a barrier after each product, or what is computed of it element by element, that is read by
    nothing but another product. Nothing that it computes is changed.
    """
    ends = {id(equation) for jaxpr in _all(closed.jaxpr) for equation in _ends(jaxpr)}
    if not ends:
        return closed

    def follow(equation: JaxprEqn) -> list[tuple[int, JaxprEqn]]:
        return [(0, _barrier(equation))] if id(equation) in ends else []

    return rewrite(closed, lambda equation, region: None, follow)


def _all(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    waiting, seen = [jaxpr], {id(jaxpr)}
    while waiting:
        yield (here := waiting.pop())
        inner = {id(each): each for each in subjaxprs(here) if id(each) not in seen}
        seen.update(inner)
        waiting += inner.values()


def _ends(jaxpr: Jaxpr) -> Iterator[JaxprEqn]:
    """The equations that make what a product reads last of another, before it is only moved."""
    uses = Counter(v for e in jaxpr.eqns for v in e.invars if not isinstance(v, Literal))
    uses.update(v for v in jaxpr.outvars if not isinstance(v, Literal))
    makers = {v: e for e in jaxpr.eqns for v in e.outvars}
    alone = {v: e for v, e in makers.items() if uses[v] == 1}
    for equation in jaxpr.eqns:
        if equation.primitive.name in PRODUCTS:
            for variable in equation.invars:
                end = _before_moves(variable, alone)
                if end is not None and _is_of_product(end, alone):
                    yield end


def _before_moves(variable: Any, alone: Mapping[Var, JaxprEqn]) -> JaxprEqn | None:
    maker = None if isinstance(variable, Literal) else alone.get(variable)
    while maker is not None and maker.primitive.name in MOVES:
        (variable, *_) = maker.invars
        maker = None if isinstance(variable, Literal) else alone.get(variable)
    return maker


def _is_of_product(equation: JaxprEqn, alone: Mapping[Var, JaxprEqn]) -> bool:
    """Whether an equation is a product, or computed element by element of one that nothing else reads."""
    if equation.primitive.name in PRODUCTS:
        return True
    if not (_is_elementwise(equation) or equation.primitive.name in MOVES):
        return False
    made: Any = equation.outvars[0].aval
    read = (v for v in equation.invars if not isinstance(v, Literal) and v in alone)
    moves = equation.primitive.name in MOVES
    return any(_is_of_product(alone[v], alone) for v in read if moves or _shape(v) == made.shape)


def _is_elementwise(equation: JaxprEqn) -> bool:
    """Whether it computes element by element, or calls what does."""
    inner = [each for jaxpr in jaxprs_in_params(equation.params) for each in jaxpr.eqns]
    simple = all(_is_elementwise(each) or each.primitive.name in MOVES | {"broadcast_in_dim"} for each in inner)
    return equation.primitive.name in (CALLS if inner else ELEMENTWISE) and simple


def _shape(variable: Any) -> tuple[int, ...]:
    return tuple(variable.aval.shape)


def _barrier(equation: JaxprEqn) -> JaxprEqn:
    aval: Any = equation.outvars[0].aval
    traced = jax.make_jaxpr(jax.lax.optimization_barrier)(jax.ShapeDtypeStruct(aval.shape, aval.dtype))
    (barrier,) = traced.jaxpr.eqns
    return barrier.replace(source_info=equation.source_info)  # type: ignore[no-any-return]
