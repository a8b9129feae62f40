"""Which layers of a step are alike: the same equations on values that lie in the same places."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend.core import ClosedJaxpr, Jaxpr, JaxprEqn, Literal

from .layers import FEWEST, Member
from .members import NONE, Layered

LEFT_OUT = ("cond_jaxpr", "fwd_jaxpr_thunk", "jvp_jaxpr_fun", "debug_info")
PERIODS = 4
"""So many kinds of layers may take turns."""

Place = tuple[int, Hashable]
"""A layer, and what a value is of it: an argument's form, or the kind of its equation, which of these, which result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Layers that are alike, every ``period`` of them: so many ``repeats`` from ``first`` on."""

    first: int
    period: int
    repeats: int

    @property
    def kept(self) -> range:
        """Those that stand for all."""
        return range(self.first, self.first + self.period)

    @property
    def gone(self) -> range:
        """Those that they stand for besides themselves."""
        return range(self.kept.stop, self.first + self.period * self.repeats)


class Likeness:
    """Compares the layers of a jaxpr. ``layers`` has that of each equation, ``members`` what each argument is."""

    def __init__(self, jaxpr: Jaxpr, layers: Sequence[Layered], members: Sequence[Member | None]):
        self.places: dict[Any, Place] = {}
        self.equations: dict[int, list[tuple[Hashable, JaxprEqn]]] = {}
        for variable, member in zip(jaxpr.invars, members, strict=True):
            if member is not None:
                self.places[variable] = (member.layer, member.form)
        kinds, turns = Kinds(), Counter[tuple[int, Hashable]]()
        for equation, (layer, is_given) in zip(jaxpr.eqns, layers, strict=True):
            if layer == NONE:
                continue
            kind = kinds.of(equation), is_given
            turn = turns[layer, kind]
            turns[layer, kind] += 1
            self.equations.setdefault(layer, []).append(((kind, turn), equation))
            for i, variable in enumerate(equation.outvars):
                self.places[variable] = (layer, (kind, turn, i))

    def run(self) -> Run | None:
        """The layers that are alike, of which most can be left out."""
        count = max(self.equations, default=NONE) + 1
        found: list[Run] = []
        for period in range(1, PERIODS + 1):
            first = 0
            for layer in range(count):
                if layer + period >= count or not self._are_alike(layer, layer + period):
                    repeats = (layer + period - first) // period
                    found.append(Run(first=first, period=period, repeats=repeats))
                    first = layer + 1
        best = max(found, key=lambda run: (len(run.gone), -run.period), default=None)
        return best if best is not None and best.repeats >= FEWEST - 1 else None

    def _are_alike(self, one: int, other: int) -> bool:
        ours, theirs = self.equations.get(one, []), self.equations.get(other, [])
        if [key for key, _ in ours] != [key for key, _ in theirs] or not ours:
            return False
        pairs = zip(ours, theirs, strict=True)
        return all(self._read_alike(a, b, other - one) for (_, a), (_, b) in pairs)

    def _read_alike(self, one: JaxprEqn, other: JaxprEqn, apart: int) -> bool:
        return all(
            ours is theirs or self._lie_alike(ours, theirs, apart)
            for ours, theirs in zip(one.invars, other.invars, strict=True)
        )

    def _lie_alike(self, one: Any, other: Any, apart: int) -> bool:
        if isinstance(one, Literal) or isinstance(other, Literal):
            both = isinstance(one, Literal) and isinstance(other, Literal)
            return both and one.aval == other.aval and bool(np.all(one.val == other.val))
        ours, theirs = self.places.get(one), self.places.get(other)
        return ours is not None and theirs is not None and ours[1] == theirs[1] and theirs[0] - ours[0] == apart


class Kinds:
    """Numbers for what equations are but for what they read; equal ones have the same."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._jaxprs: dict[int, tuple[object, int]] = {}  # by id; the jaxpr is kept alive

    def of(self, equation: JaxprEqn) -> int:
        """The number of an equation's kind."""
        key = (
            equation.primitive.name,
            tuple(v.aval for v in equation.invars),
            tuple(v.aval for v in equation.outvars),
            tuple((name, self._value(v)) for name, v in sorted(equation.params.items()) if name not in LEFT_OUT),
        )
        return self._number(key)

    def _number(self, key: Hashable) -> int:
        return self._known.setdefault(key, len(self._known))

    def _value(self, value: Any) -> Hashable:
        if isinstance(value, ClosedJaxpr):
            return (self._jaxpr(value.jaxpr), tuple(map(id, value.consts)))
        if isinstance(value, Jaxpr):
            return self._jaxpr(value)
        if isinstance(value, Mapping):
            return tuple((key, self._value(each)) for key, each in value.items())
        if isinstance(value, (list, tuple)):
            return tuple(map(self._value, value))
        try:
            hash(value)
        except TypeError:
            return id(value)
        return value  # type: ignore[no-any-return]

    def _jaxpr(self, jaxpr: Jaxpr) -> int:
        if id(jaxpr) not in self._jaxprs:
            numbers: dict[Any, int] = {}

            def read(variable: Any) -> Hashable:
                if isinstance(variable, Literal):
                    return (str(variable.val), variable.aval)
                return numbers.setdefault(variable, len(numbers))

            edge = tuple(read(v) for v in (*jaxpr.constvars, *jaxpr.invars))
            body = tuple((self.of(e), tuple(map(read, e.invars)), tuple(map(read, e.outvars))) for e in jaxpr.eqns)
            found = self._number((edge, body, tuple(map(read, jaxpr.outvars))))
            self._jaxprs[id(jaxpr)] = (jaxpr, found)
        return self._jaxprs[id(jaxpr)][1]
