"""Which computed values a model tags: a tag's path and the paths of what it names speak of the same values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jax.extend.core import Jaxpr, Literal

from .trace import Traced, value_names
from .values import SAME, each_jaxpr


def tag_values(traced: Traced) -> Mapping[str, tuple[str, ...]]:
    """By the path of each tag (``acts/...``), the paths of the values (``ops/...``) that it names, gradients too.

    A tag that somewhere names what has no path, such as an argument, is left out.
    """
    name, made = value_names(traced.jaxpr.jaxpr), traced.values.of_equation
    found: dict[str, dict[str, None]] = {}
    unknown: set[str] = set()
    for jaxpr in each_jaxpr(traced.jaxpr.jaxpr):
        paths = _paths(jaxpr, made)
        for equation in jaxpr.eqns:
            called = name(equation)
            if called is None:
                continue
            path = _of(paths, equation.invars[0])
            if path is None:
                unknown.add(f"acts/{called}")
            else:
                found.setdefault(f"acts/{called}", {})[path] = None
    return {tag: tuple(values) for tag, values in found.items() if tag not in unknown}


def _paths(jaxpr: Jaxpr, made: Mapping[int, tuple[tuple[int, str], ...]]) -> dict[Any, str]:
    """The paths of the variables of a jaxpr; what only passes a value on gives the same one."""
    found: dict[Any, str] = {}
    for equation in jaxpr.eqns:
        for position, path in made.get(id(equation), ()):
            found[equation.outvars[position]] = path
        if equation.primitive.name in SAME:
            passed = _of(found, equation.invars[0])
            if passed is not None:
                found[equation.outvars[0]] = passed
    return found


def _of(paths: Mapping[Any, str], variable: Any) -> str | None:
    return None if isinstance(variable, Literal) else paths.get(variable)
