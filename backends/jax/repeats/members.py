"""Which layer each equation of a step is of, forward, backward and in the update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jax.extend.core import Jaxpr, JaxprEqn, Literal

NONE = -1
"""In the place of a layer: of none."""


class Layered(NamedTuple):
    """The layer of an equation (``NONE``: of none). ``is_given`` says that what it makes comes of no layer."""

    layer: int
    is_given: bool


def layers_of(jaxpr: Jaxpr, arguments: Sequence[int], results: Sequence[int]) -> list[Layered]:
    """The layer of each equation of a jaxpr, by those of its arguments and of its results.

    What an equation reads comes of layers up to some number, and what it makes goes into results of layers up to
    another. Forward the first of these grows from layer to layer, backward the second: the lower one is its layer. What
    goes on through single numbers does not count, as the norm of all gradients; what leads to no layer's result, as
    that norm does, or the gradient of what layers share, is of the layer that it is made of; what comes of no layer, as
    a mask does, of the only one that reads it.
    """
    before = _before(jaxpr, arguments)
    after = _after(jaxpr, results)
    makers = {v: number for number, equation in enumerate(jaxpr.eqns) for v in equation.outvars}
    given = dict(zip(jaxpr.invars, arguments, strict=True))
    found: list[int] = []
    for number, equation in enumerate(jaxpr.eqns):
        if before[number] == NONE:
            found.append(NONE)
        elif after[number] != NONE:
            found.append(min(before[number], after[number]))
        else:
            found.append(_of_operands(equation, jaxpr.eqns, makers, found, given))
    layers = _with_readers(jaxpr, found, before)
    return [Layered(layer, first == NONE) for layer, first in zip(layers, before, strict=True)]


def _with_readers(jaxpr: Jaxpr, layers: Sequence[int], before: Sequence[int]) -> list[int]:
    """The layers; of the only one that reads it is what comes of none, or of single numbers, as each layer's own way
    from the norm of all gradients to its scale.
    """
    found = list(layers)
    readers: dict[Any, list[tuple[int, JaxprEqn | None]]] = {}
    for variable in jaxpr.outvars:
        if not isinstance(variable, Literal):
            readers[variable] = [(NONE, None)]
    for number in range(len(found) - 1, -1, -1):
        equation = jaxpr.eqns[number]
        read_by = [reader for v in equation.outvars for reader in readers.get(v, ())]
        layer = read_by[0][0] if len({layer for layer, _ in read_by}) == 1 else NONE
        if before[number] == NONE:
            found[number] = layer
        elif NONE < layer < found[number] and _is_of_numbers(equation):
            goes_on = any(reader is not None and _is_like(equation, reader) for _, reader in read_by)
            found[number] = found[number] if goes_on else layer
        for variable in equation.invars:
            if not isinstance(variable, Literal):
                readers.setdefault(variable, []).append((found[number], equation))
    return found


def _is_of_numbers(equation: JaxprEqn) -> bool:
    """Whether an equation reads and makes single numbers alone."""
    return not any(getattr(v.aval, "shape", ()) for v in (*equation.invars, *equation.outvars))


def _of_operands(
    equation: JaxprEqn,
    equations: Sequence[JaxprEqn],
    makers: Mapping[Any, int],
    found: Sequence[int],
    given: Mapping[Any, int],
) -> int:
    """The last layer of what an equation reads, but for what one of its own kind made: a sum that goes on."""
    own: list[int] = []
    passed: list[int] = []
    for variable in equation.invars:
        if isinstance(variable, Literal):
            continue
        maker = makers.get(variable)
        layer = given.get(variable, NONE) if maker is None else found[maker]
        goes_on = maker is not None and _is_like(equations[maker], equation)
        (passed if goes_on else own).append(layer)
    return max(own, default=NONE) if max(own, default=NONE) != NONE else max(passed, default=NONE)


def _is_like(one: JaxprEqn, other: JaxprEqn) -> bool:
    return one.primitive is other.primitive and [v.aval for v in one.outvars] == [v.aval for v in other.outvars]


def _before(jaxpr: Jaxpr, arguments: Sequence[int]) -> list[int]:
    """The last layer that each equation's operands come of."""
    of: dict[Any, int] = dict(zip(jaxpr.invars, arguments, strict=True))
    found = []
    for equation in jaxpr.eqns:
        layer = max((of.get(v, NONE) for v in equation.invars if not isinstance(v, Literal)), default=NONE)
        of.update(dict.fromkeys(equation.outvars, layer))
        found.append(layer)
    return found


def _after(jaxpr: Jaxpr, results: Sequence[int]) -> list[int]:
    """The last layer whose results come of what each equation makes."""
    of: dict[Any, int] = {}
    for variable, layer in zip(jaxpr.outvars, results, strict=True):
        if not isinstance(variable, Literal):
            of[variable] = max(of.get(variable, NONE), layer)
    found = []
    for equation in reversed(jaxpr.eqns):
        layer = max((of.get(v, NONE) for v in equation.outvars if getattr(v.aval, "shape", ())), default=NONE)
        for variable in equation.invars:
            if not isinstance(variable, Literal):
                of[variable] = max(of.get(variable, NONE), layer)
        found.append(layer)
    return found[::-1]
