"""What a program asks of a search, as the values of a plan: a mesh by its sizes, amounts of memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Integral
from typing import Any

from ...dsl.errors import FlawError, PlanError, Problem, problem, raise_errors
from ...dsl.notation import check_name
from ...dsl.plan import Axis, Limits, Mesh
from ...dsl.units import check_bytes, parse_bytes

HOLES = ("auto", None)


def mesh_of(sizes: Mapping[str, int | str | None] | Mesh) -> Mesh:
    """The mesh with these axes, major first; ``"auto"`` and None leave a size to the planner. Raises ``PlanError`` for
    names that a plan cannot write, and sizes that are none.
    """
    if isinstance(sizes, Mesh):
        return sizes
    if not isinstance(sizes, Mapping):
        raise PlanError(
            [problem("MW553", option="mesh", value=repr(sizes), expected="sizes by name: {'x': 2, 'y': 4}")]
        )
    raise_errors([each for name, size in sizes.items() for each in (*_of_name(name), *_of_size(name, size))])
    axes = (Axis(name=name, size=None if size in HOLES else int(size or 0)) for name, size in sizes.items())
    return Mesh(axes=tuple(axes) or None)


def limits_of(given: Mapping[str, int | str] | Limits) -> Limits:
    """The limits by their keys in a plan. Raises ``PlanError`` for other keys, and for what is no amount."""
    if isinstance(given, Limits):
        return given
    if not isinstance(given, Mapping):
        raise PlanError([problem("MW553", option="limits", value=repr(given), expected="{'hbm': '15 GiB'}")])
    raise_errors(
        [problem("MW553", option="limits", value=repr(key), expected="the key 'hbm'") for key in given if key != "hbm"]
    )
    return Limits(hbm_bytes=amount_of("limits['hbm']", given.get("hbm")))


def amount_of(option: str, value: int | str | None) -> int | None:
    """An amount of memory in bytes, as an option says it. Raises ``PlanError`` for what is none."""
    if value is None:
        return None
    if not (isinstance(value, str) or is_whole(value)):
        expected = "whole bytes, or a text such as '15 GiB'"
        raise PlanError([problem("MW553", option=option, value=repr(value), expected=expected)])
    try:
        return parse_bytes(value) if isinstance(value, str) else check_bytes(int(value))
    except FlawError as error:
        raise PlanError([flaw.at(None) for flaw in error.flaws]) from None


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number, of NumPy's too; a truth value is none."""
    return isinstance(value, Integral) and not isinstance(value, bool)


def _of_name(name: Any) -> Iterator[Problem]:
    if not isinstance(name, str):
        yield problem("MW553", option="The name of an axis", value=repr(name), expected="a text")
        return
    try:
        check_name(name)
    except FlawError as error:
        yield from (flaw.at(None) for flaw in error.flaws)


def _of_size(name: Any, size: Any) -> Iterator[Problem]:
    if size not in HOLES and not (is_whole(size) and size > 0):
        expected = "a whole number above 0, or 'auto'"
        yield problem("MW553", option=f"mesh['{name}']", value=repr(size), expected=expected)
