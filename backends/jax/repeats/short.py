"""A traced step with fewer layers: of those that are alike one stays, which stands for all of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from ....dsl.tensors import Tensor
from ..trace import Traced, tagged_in
from ..values import Values
from ..written import word
from .alike import Likeness, Run
from .calls import without_calls
from .layers import Family, families
from .members import NONE, Layered, layers_of
from .scope import repeated

MOST_FAMILIES = 4
"""So many families of layers at most are made shorter: an encoder's, a decoder's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Short:
    """A shorter step, ``traced``. ``stands_for`` has, by the path of each argument and result that is left out, that
    of the one which stands for it. ``num_equations`` are those of the whole step.
    """

    traced: Traced
    stands_for: Mapping[str, str]
    num_equations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edges:
    """A jaxpr, and its arguments and results as a plan names them, in its order; ``leaves`` number the arguments."""

    jaxpr: Jaxpr
    arguments: tuple[Tensor, ...]
    results: tuple[Tensor, ...]
    leaves: tuple[int, ...]


def shortened(traced: Traced, donate_argnums: int | Sequence[int] | None = None) -> Short | None:
    """A step that computes with fewer layers what a step computes; None where no layers repeat exactly.

    Both have the same values under the same names, but for how often these repeat, and for what calls of several layers
    make: it has none of those. Donation is as ``apply`` has it; of the shorter step it is by leaves.
    """
    opened = without_calls(traced.jaxpr)
    values = traced.values if opened is traced.jaxpr else Values(opened, _name(traced))
    if any(traced.values.of_variable.get(variable) != path for variable, path in values.of_variable.items()):
        return None
    edges = _Edges(
        jaxpr=opened.jaxpr,
        arguments=traced.arguments,
        results=traced.results,
        leaves=tuple(range(len(traced.arguments))),
    )
    stands_for: dict[str, str] = {}
    for family in families([tensor.path for tensor in (*traced.arguments, *traced.results)])[:MOST_FAMILIES]:
        found = _without_repeats(edges, family)
        if found is not None:
            edges, gone = found
            stands_for |= gone
    if not stands_for:
        return None
    short = _traced(replace(traced, jaxpr=opened), edges, traced.donates(donate_argnums))
    agree = values.stems == short.values.stems and set(traced.tagged) == set(short.tagged)
    return Short(traced=short, stands_for=stands_for, num_equations=len(opened.jaxpr.eqns)) if agree else None


def _without_repeats(edges: _Edges, family: Family) -> tuple[_Edges, dict[str, str]] | None:
    """The step without the layers of a family that others stand for, and what stands for what."""
    jaxpr = edges.jaxpr
    arguments = [family.member(tensor.path) for tensor in edges.arguments]
    results = [family.member(tensor.path) for tensor in edges.results]
    layers = layers_of(jaxpr, *([NONE if m is None else m.layer for m in each] for each in (arguments, results)))
    likeness = Likeness(jaxpr, layers, arguments)
    run = likeness.run()
    if run is None:
        return None
    equations = _Splicer(likeness, run).equations(jaxpr, layers)
    kept = [[i for i, m in enumerate(each) if m is None or m.layer not in run.gone] for each in (arguments, results)]
    outside = [jaxpr.outvars[i] for i in kept[1]]
    if equations is None or not _are_made(jaxpr, equations, kept[0], outside):
        return None
    paths = {(m.layer, m.form): t.path for m, t in zip(arguments, edges.arguments, strict=True) if m is not None}
    paths |= {(m.layer, m.form): t.path for m, t in zip(results, edges.results, strict=True) if m is not None}
    gone = {
        path: paths[run.first + (layer - run.first) % run.period, form]
        for (layer, form), path in paths.items()
        if layer in run.gone
    }
    short = _Edges(
        jaxpr=_replaced(jaxpr, equations, [jaxpr.invars[i] for i in kept[0]], outside),
        arguments=tuple(edges.arguments[i] for i in kept[0]),
        results=tuple(edges.results[i] for i in kept[1]),
        leaves=tuple(edges.leaves[i] for i in kept[0]),
    )
    return short, gone


class _Splicer:
    """Leaves layers out: what is read of them is read of those that stand before them, or after them."""

    def __init__(self, likeness: Likeness, run: Run):
        self.run = run
        self.places = likeness.places
        self.at = {place: variable for variable, place in likeness.places.items()}

    def equations(self, jaxpr: Jaxpr, layers: Sequence[Layered]) -> list[JaxprEqn] | None:
        """The equations that are left; None where one reads of what is gone what nothing stands for."""
        found: list[JaxprEqn] = []
        for equation, (layer, _) in zip(jaxpr.eqns, layers, strict=True):
            if layer in self.run.gone:
                continue
            read: list[Any] = [self._read(variable, layer) for variable in equation.invars]
            if any(variable is None for variable in read):
                return None
            if any(a is not b for a, b in zip(read, equation.invars, strict=True)):
                equation = equation.replace(invars=read)
            found.append(repeated(equation, self.run.repeats) if layer in self.run.kept else equation)
        return found

    def _read(self, variable: Any, layer: int) -> Any | None:
        """What an equation of a layer reads in the place of a variable."""
        if isinstance(variable, Literal) or variable not in self.places:
            return variable
        read, place = self.places[variable]
        if read not in self.run.gone:
            return variable
        gone = len(self.run.gone)
        if layer == NONE:
            return None
        other = read - gone if layer >= self.run.gone.stop else read + gone
        return None if other in self.run.gone else self.at.get((other, place))


def _are_made(jaxpr: Jaxpr, equations: Sequence[JaxprEqn], kept: Sequence[int], results: Sequence[Any]) -> bool:
    """Whether all that is read is there before."""
    there = {*(jaxpr.invars[i] for i in kept), *jaxpr.constvars}
    for equation in equations:
        if any(not isinstance(v, Literal) and v not in there for v in equation.invars):
            return False
        there.update(equation.outvars)
    return all(isinstance(v, Literal) or v in there for v in results)


def _replaced(jaxpr: Jaxpr, equations: Sequence[JaxprEqn], arguments: Sequence[Any], results: Sequence[Any]) -> Jaxpr:
    said = jaxpr.debug_info._replace(arg_names=None, result_paths=None)
    return jaxpr.replace(  # type: ignore[no-any-return]
        eqns=list(equations), invars=list(arguments), outvars=list(results), debug_info=said
    )


def _traced(traced: Traced, edges: _Edges, donated_arguments: Sequence[int]) -> Traced:
    """The shorter step: its arguments and results are no trees any more."""
    jaxpr = ClosedJaxpr(edges.jaxpr, traced.jaxpr.consts)
    numbered = jax.tree.unflatten(traced.in_tree, range(traced.in_tree.num_leaves))
    donated = {leaf for argument in donated_arguments for leaf in jax.tree.leaves(numbered[argument])}
    tagged, in_place, blocks = tagged_in(edges.jaxpr)
    return replace(
        traced,
        jaxpr=jaxpr,
        in_tree=jax.tree.structure((0,) * len(edges.arguments)),
        out_tree=jax.tree.structure((0,) * len(edges.results)),
        arguments=edges.arguments,
        results=edges.results,
        tagged=tagged,
        in_place=in_place,
        donated=tuple(i for i, leaf in enumerate(edges.leaves) if leaf in donated),
        values=Values(jaxpr, _name(traced)),
        num_remat_blocks=blocks,
    )


def _name(traced: Traced) -> str:
    return word(getattr(traced.step, "__name__", "step"))
