"""What results take over of the step's arguments: numbers that are changed where they stand, not brought together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache

from jax.extend.core import Jaxpr, JaxprEqn, Literal, Var, jaxprs_in_params

MIXES = frozenset(
    {"dot_general", "ragged_dot", "ragged_dot_general", "conv_general_dilated", "gather", "transpose", "sort", "top_k",
     "reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or", "reduce_xor", "argmax",
     "argmin", "cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp", "reduce_window", "reduce_window_sum",
     "reduce_window_max", "reduce_window_min", "select_and_scatter_add", "broadcast_in_dim", "concatenate", "rev",
     "fft", "cholesky", "qr", "lu", "householder_product", "triangular_solve", "eigh", "svd"}
)  # fmt: skip
"""Operations whose results have other numbers at a place than their operands."""
UPDATES = ("scatter", "dynamic_update_slice")
"""What puts numbers into an array, their first operand."""


def taking_over(
    jaxpr: Jaxpr, arguments: Sequence[str], results: Sequence[str], donated: Sequence[bool]
) -> Callable[[str, str], bool]:
    """Whether a result is what became of an argument, both by their paths, which are in the order of the jaxpr's: it
    takes it over, or is given its place.
    """
    given, made = ({path: number for number, path in enumerate(paths)} for paths in (arguments, results))

    @cache
    def known(result: str) -> frozenset[int]:
        return taken_over(jaxpr, made[result])

    return lambda result, argument: donated[given[argument]] or given[argument] in known(result)


def taken_over(jaxpr: Jaxpr, result: int) -> frozenset[int]:
    """The arguments that a result takes over, both by their positions. Of loops and branches any operand counts."""
    variable = jaxpr.outvars[result]
    found = _sources(jaxpr, [] if isinstance(variable, Literal) else [variable])
    return frozenset(number for number, each in enumerate(jaxpr.invars) if each in found)


def _sources(jaxpr: Jaxpr, made: Sequence[Var]) -> set[Var]:
    """The variables that some of a jaxpr's are made of so, and these."""
    found = set(made)
    for equation in reversed(jaxpr.eqns):
        if not found.isdisjoint(equation.outvars) and equation.primitive.name not in MIXES:
            found.update(each for each in _operands(equation, found) if not isinstance(each, Literal))
    return found


def _operands(equation: JaxprEqn, found: set[Var]) -> Iterable[Var | Literal]:
    """What of an equation's operands those of its results are made of that are wanted."""
    if equation.primitive.name.startswith(UPDATES):
        return equation.invars[:1]
    inner = list(jaxprs_in_params(equation.params))
    if len(inner) != 1 or equation.primitive.name in ("scan", "while"):
        return equation.invars
    (called,) = inner
    sizes = len(called.invars), len(called.outvars)
    if sizes != (len(equation.invars), len(equation.outvars)):
        return equation.invars
    wanted = [own for own, made in zip(called.outvars, equation.outvars, strict=True) if made in found]
    inside = _sources(called, [each for each in wanted if not isinstance(each, Literal)])
    return [each for each, own in zip(equation.invars, called.invars, strict=True) if own in inside]
