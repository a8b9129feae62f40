"""Names for what a step computes: each value that an equation of its jaxpr makes, forward or backward, by a path.

``ops/<function>/[grad/|remat/]<name>.<site>[/<turn>]``: the function of the model in which it is written, the primitive
or the jitted function that makes it, which place in that function it is, in program order, one for each line that calls
the function, and which repetition of that place (unrolled layers) where there are several. Of several results each has
its number: ``ops/loss/scan.0.1``, of what a loop carries on every turn of it. What each turn reads of the arrays that a
scan goes over has their number: ``ops/loss/scan.0.xs1``. What a library's jitted function computes
has that one's name before its own: ``ops/norm/_var.sub.0``; it has no path inside a jitted function of the user's that
is called several times. What an equation reads, as it alone reads it, has its place: ``ops/loss/dot_general.0.in1``. Of
what makes but one number only these have a name, with ``scalar/`` before the equation's:
``ops/loss/scalar/dot_general.0.in1``. Nothing in a path depends on devices, nor on how long a loop runs.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from jax._src.core import DropVar
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from ...dsl.rule_matches import OPS, ValuePaths
from ...dsl.tensors import Tensor
from .annotate import barrier_p, mark_p
from .written import Place, Written, word

CALLS = ("jit", "pjit", "closed_call", "core_call", "checkpoint", "remat2", "custom_jvp_call", "custom_vjp_call")
JITTED = ("jit", "pjit")
LOOPS = ("scan", "while", "cond")
ENTERED = {*CALLS, *LOOPS}
"""The equations whose jaxprs compute values of the step; those of others, as of a kernel or a sum, do not."""

LEFT_OUT = ("cond_jaxpr", "fwd_jaxpr_thunk", "jvp_jaxpr_fun")
SAME = {mark_p.name, barrier_p.name, "name", "sharding_constraint"}
"""The equations whose result is their operand."""

SCALAR = "scalar/"

PLAIN = (int, float, str, bool, type(None), np.dtype, enum.Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What an inner jaxpr's equations have of the one that it belongs to: the number of its site, direction, place, and
    ``call``, the library's jitted functions that it is called in, for equations without a place of their own.
    """

    site: int
    direction: str
    place: Place
    call: str = ""
    is_shared: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A result of an equation, an operand as it reads it, or what a turn of a scan reads of one (``is_slice``): its
    path but for the turn, and that.
    """

    equation: JaxprEqn
    position: int
    stem: str
    turn: int
    is_operand: bool = False
    is_slice: bool = False
    is_shared: bool = False

    @property
    def aval(self) -> Any:
        """The value's shape and dtype."""
        if self.is_slice:
            return slices(self.equation)[self.position].aval
        variables = self.equation.invars if self.is_operand else self.equation.outvars
        return variables[self.position].aval


class Values:
    """The values of a step that have a path. Nothing is looked at before something is asked."""

    def __init__(self, jaxpr: ClosedJaxpr, step_name: str):
        self._jaxpr = jaxpr
        self._step_name = step_name

    @cached_property
    def tensors(self) -> tuple[Tensor, ...]:
        """A tensor of role ``op`` for each value, in program order."""
        return tuple(self.by_path.values())

    @cached_property
    def by_path(self) -> Mapping[str, Tensor]:
        """The tensors by their paths."""
        return {path: _tensor(path, found.aval) for path, found in self._paths if found.aval.shape}

    @cached_property
    def paths(self) -> ValuePaths:
        """The same, for patterns to be matched with."""
        return ValuePaths(self.by_path)

    @cached_property
    def stems(self) -> frozenset[str]:
        """The paths but for the turns."""
        return frozenset(found.stem for _, found in self._paths)

    @cached_property
    def shared(self) -> frozenset[str]:
        """The paths of what several calls compute."""
        return frozenset(path for path, found in self._paths if found.is_shared)

    @cached_property
    def of_variable(self) -> Mapping[Any, str]:
        """By each variable that an equation makes, its path."""
        made = ((path, each) for path, each in self._paths if not (each.is_operand or each.is_slice))
        return {each.equation.outvars[each.position]: path for path, each in made}

    @cached_property
    def of_equation(self) -> Mapping[int, tuple[tuple[int, str], ...]]:
        """By the ``id`` of an equation, the positions and paths of its results that have one, of single numbers too."""
        return self._by_equation(lambda each: not (each.is_operand or each.is_slice))

    @cached_property
    def read_by_equation(self) -> Mapping[int, tuple[tuple[int, str], ...]]:
        """By the ``id`` of an equation, the positions and paths of its operands that have one."""
        return self._by_equation(lambda each: each.is_operand)

    @cached_property
    def turned_by_equation(self) -> Mapping[int, tuple[tuple[int, str], ...]]:
        """By the ``id`` of a scan, the positions among its operands, and the paths, of what each turn reads of them."""
        return self._by_equation(lambda each: each.is_slice)

    @cached_property
    def carried(self) -> frozenset[str]:
        """The paths of what loops carry."""
        found = (f for f in self._paths if not (f[1].is_operand or f[1].is_slice))
        return frozenset(path for path, each in found if each.position in carries(each.equation))

    def _by_equation(self, asked: Callable[[_Found], bool]) -> Mapping[int, tuple[tuple[int, str], ...]]:
        found: dict[int, tuple[tuple[int, str], ...]] = {}
        for path, each in self._paths:
            if asked(each):
                found[id(each.equation)] = (*found.get(id(each.equation), ()), (each.position, path))
        return found

    @cached_property
    def _paths(self) -> list[tuple[str, _Found]]:
        found = list(_Walk(self._jaxpr.jaxpr).run(self._step_name))
        turns = Counter(each.stem for each in found)
        return [(f"{f.stem}/{f.turn}" if turns[f.stem] > 1 else f.stem, f) for f in found]


def _tensor(path: str, aval: Any) -> Tensor:
    return Tensor(path=path, shape=tuple(aval.shape), dtype=str(aval.dtype), itemsize=aval.dtype.itemsize, role="op")


class _Walk:
    """One pass over a step in program order, which numbers its places and their turns."""

    def __init__(self, jaxpr: Jaxpr):
        self.jaxpr = jaxpr
        equations = [e for j in each_jaxpr(jaxpr) for e in j.eqns]  # of which several jaxprs may have the same
        self.uses = Counter(map(id, equations)) + Counter(id(inner) for e in equations for inner in inner_jaxprs(e))
        self.entered: set[int] = set()
        self.keys: dict[Any, int] = {}
        self.sites: dict[str, dict[int, int]] = {}
        self.turns: Counter[str] = Counter()
        self.written = Written()

    def run(self, step_name: str) -> Iterator[_Found]:
        """The values with their stems and turns."""
        yield from self._in(self.jaxpr, Around(site=-1, direction="", place=Place(function=step_name, frames=())))

    def _in(self, jaxpr: Jaxpr, around: Around) -> Iterator[_Found]:
        for number, equation in enumerate(jaxpr.eqns):
            own = self.written.place(equation)
            place = own or around.place
            way = direction(str(equation.source_info.name_stack)) or around.direction
            name = _name(equation)
            form = _form(equation), None if own else number
            key = self.keys.setdefault((around.site, way, name, place, form), len(self.keys))
            if id(equation) not in self.entered and (own or not around.is_shared):
                self.entered.add(id(equation))
                stem = f"{OPS}{place.function}/{way}{'' if own else around.call}{name}"
                yield from self._of(equation, stem, key, is_shared=around.is_shared or self.uses[id(equation)] > 1)
            for inner in inner_jaxprs(equation):
                is_shared = around.is_shared or self.uses[id(inner)] > 1
                if id(inner) not in self.entered:
                    self.entered.add(id(inner))
                    call = around.call + self._call(equation, inner)
                    within = Around(site=key, direction=way, place=place, call=call, is_shared=is_shared)
                    yield from self._in(inner, within)

    def _call(self, equation: JaxprEqn, inner: Jaxpr) -> str:
        """What the paths of what a library's jitted function computes begin with."""
        is_library = equation.primitive.name in JITTED and self.written.is_library(inner)
        return f"{_name(equation)}." if is_library else ""

    def _of(self, equation: JaxprEqn, stem: str, key: int, *, is_shared: bool) -> Iterator[_Found]:
        kept = carries(equation)
        named = [i for i, v in enumerate(equation.outvars) if _is_nameable(v, is_carried=i in kept)]
        if not named and _is_summed(equation):
            named, stem = [0], f"{stem[: -len(_name(equation))]}{SCALAR}{_name(equation)}"
        if not named or equation.primitive.name in SAME:
            return
        known = self.sites.setdefault(stem, {})
        stem = f"{stem}.{known.setdefault(key, len(known))}"
        turn = self.turns[stem]
        self.turns[stem] += 1
        for i in named:
            own = f"{stem}.{i}" if len(equation.outvars) > 1 else stem
            yield _Found(equation=equation, position=i, stem=own, turn=turn, is_shared=is_shared)
        for number, i in enumerate(slices(equation)):
            own = f"{stem}.xs{number}"
            yield _Found(equation=equation, position=i, stem=own, turn=turn, is_slice=True, is_shared=is_shared)
        read: list[Any] = [] if equation.primitive.name in ENTERED else equation.invars
        for i, variable in enumerate(read):
            if not isinstance(variable, Literal) and variable.aval.shape:
                own = f"{stem}.in{i}"
                yield _Found(equation=equation, position=i, stem=own, turn=turn, is_operand=True, is_shared=is_shared)


def each_jaxpr(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """A jaxpr and those that its values are computed in, each once."""
    stack, seen = [jaxpr], {id(jaxpr)}
    while stack:
        current = stack.pop()
        yield current
        for inner in (j for e in current.eqns for j in inner_jaxprs(e)):
            if id(inner) not in seen:
                seen.add(id(inner))
                stack.append(inner)


def inner_jaxprs(equation: JaxprEqn) -> Iterator[Jaxpr]:
    """The jaxprs that an equation computes values of the step in."""
    if equation.primitive.name not in ENTERED:
        return
    for name, value in equation.params.items():
        if name not in LEFT_OUT:
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, (ClosedJaxpr, Jaxpr)):
                    yield each.jaxpr if isinstance(each, ClosedJaxpr) else each


def carries(equation: JaxprEqn) -> dict[int, tuple[str, int]]:
    """What a loop carries: by the number of the result that it ends as, in which jaxpr it comes in, and as what."""
    kind, params = equation.primitive.name, equation.params
    if kind == "scan":
        return {i: ("jaxpr", params["num_consts"] + i) for i in range(params["num_carry"])}
    if kind == "while":
        return {i: ("body_jaxpr", params["body_nconsts"] + i) for i in range(len(equation.outvars))}
    return {}


def slices(equation: JaxprEqn) -> dict[int, Any]:
    """What each turn of a scan reads of the arrays that it goes over: by the place of these among its operands the
    variable of its body; nothing of other equations.
    """
    if equation.primitive.name != "scan":
        return {}
    params = equation.params
    first, inside = params["num_consts"] + params["num_carry"], params["jaxpr"].jaxpr.invars
    return dict(enumerate(inside[first:], first))


def _is_nameable(variable: Any, *, is_carried: bool = False) -> bool:
    """Whether a result is used, if only on every turn of a loop, and an array with dims."""
    aval = variable.aval
    itemsize = getattr(getattr(aval, "dtype", None), "itemsize", None)
    is_used = is_carried or not isinstance(variable, DropVar)
    return is_used and isinstance(itemsize, int) and bool(getattr(aval, "shape", ()))


def _is_summed(equation: JaxprEqn) -> bool:
    """Whether all that an equation makes is one number of arrays that it reads."""
    made = [v for v in equation.outvars if not isinstance(v, DropVar)]
    reads = any(not isinstance(v, Literal) and getattr(v.aval, "shape", ()) for v in equation.invars)
    entered = equation.primitive.name in ENTERED
    return (
        len(equation.outvars) == 1
        and bool(made)
        and getattr(made[0].aval, "shape", None) == ()
        and reads
        and not entered
    )


def direction(stack: str) -> str:
    """What a name stack says of backward passes and of values computed anew: a part of a path, or nothing."""
    if "transpose(" in stack:
        return "grad/"
    return "remat/" if "rematted_computation" in stack else ""


def _name(equation: JaxprEqn) -> str:
    called = equation.params.get("name") if equation.primitive.name in CALLS else None
    return word(str(called or equation.primitive.name))


def _form(equation: JaxprEqn) -> tuple[Any, ...]:
    """What tells apart the equations of one place: shapes, dtypes and plain parameters."""
    avals = tuple([_text(v.aval) for v in (*equation.invars, *equation.outvars)])
    plain = tuple((name, value) for name, value in sorted(equation.params.items()) if _is_plain(value))
    return avals, plain


@lru_cache(maxsize=4096)
def _text(aval: Any) -> str:
    return str(aval)


def _is_plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(map(_is_plain, value)))
