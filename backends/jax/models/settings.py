"""What a model can be told: settings read from a plan's ``with:`` into a frozen config, every problem at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar

from ....dsl.errors import PlanError, Problem, problem, raise_errors, suggest

C = TypeVar("C")

_KINDS = {
    "int": ((int,), "a whole number"),
    "int | None": ((int, type(None)), "a whole number or null"),
    "float": ((int, float), "a number"),
    "float | None": ((int, float, type(None)), "a number or null"),
    "bool": ((bool,), "true or false"),
    "str": ((str,), "a word"),
    "str | None": ((str, type(None)), "a word or null"),
}
_TOO_LARGE = 2**31  # no dim of a model has as many elements


def read_settings(
    model: str,
    config: type[C],
    defaults: Mapping[str, Any],
    settings: Mapping[str, Any],
    *,
    besides: Sequence[str] = (),
) -> C:
    """The config of dataclass ``config`` that ``settings``, laid over ``defaults``, describes.

    ``besides`` are names that the model takes besides the config's, to suggest where a name is unknown.
    Fields say what is legal in their metadata: ``least``, ``below`` (exclusive), ``choices``. Fields of types that
    settings do not have are not for plans to say.
    Raises ``PlanError`` with every unknown name (MW601), wrong type (MW602) and value out of range (MW603).
    """
    known = {f.name: f for f in fields(config) if str(f.type) in _KINDS}  # type: ignore[arg-type]
    legal = [*besides, *known]
    unknown = [
        problem("MW601", model=model, name=name, suggestion=suggest(name, legal))
        for name in settings
        if name not in known
    ]
    given = [(known[name], value) for name, value in settings.items() if name in known]
    raise_errors([*unknown, *(p for field, value in given for p in _problems(model, defaults, field, value))])
    return config(**{**defaults, **settings})


def nearest(candidates: Iterable[int], wanted: int, *, limit: int = 4) -> str:
    """The candidates nearest to ``wanted``, ascending, as a phrase; ``none`` if there are none."""
    near = sorted(sorted(candidates, key=lambda c: abs(c - wanted))[:limit])
    return ", ".join(map(str, near)) or "none"


def unknown_member(name: object, members: Iterable[str]) -> PlanError:
    """The error for a member that a family does not have."""
    return PlanError([problem("MW604", setting="member", name=str(name), suggestion=suggest(str(name), members))])


def _problems(model: str, defaults: Mapping[str, Any], field: Field[Any], value: Any) -> list[Problem]:
    name = field.name
    example = defaults.get(name, None if field.default is MISSING else field.default)
    types, expected = _KINDS[str(field.type)]
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        given = type(value).__name__
        told: dict[str, Any] = {
            "model": model,
            "name": name,
            "value": repr(value),
            "given": given,
            "expected": expected,
        }
        return [problem("MW602", **told, example=_yaml(example))]
    bound = _broken_bound(field, value)
    return [problem("MW603", model=model, name=name, value=value, bound=bound, example=_yaml(example))] if bound else []


def _broken_bound(field: Field[Any], value: Any) -> str:
    """What ``value`` should have been, or the empty string if it is legal."""
    rules = {"below": _TOO_LARGE, **field.metadata}
    if value is None or isinstance(value, bool):
        return ""
    if "choices" in rules and value not in rules["choices"]:
        return "one of " + ", ".join(rules["choices"])
    if "least" in rules and not value >= rules["least"]:
        return f"at least {rules['least']}"
    if not isinstance(value, str) and not value < rules["below"]:
        return f"below {rules['below']}"
    return ""


def _yaml(value: Any) -> str:
    return "null" if value is None else str(value).lower()
