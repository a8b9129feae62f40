"""What a model says of its settings that a plan may leave open: the values that the search is to choose from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ...dsl.errors import PlanError, Problem, problem, raise_errors, shorten
from ...dsl.notation import repeats
from ...dsl.yaml_words import value

Model = TypeVar("Model", bound=Callable[..., Any])
_ATTRIBUTE = "meshwright_choices"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the search may choose from. ``values`` has the values of each setting that may be ``auto``, in the order in
    which they are tried.

    The settings in ``at_run_time`` may change from one step to the next: whatever they are, the step has the same
    arguments and gives the same state. ``by`` is the setting that the world changes, numbers (a capacity factor): where
    it is open, the plan is made for the largest and gets a table of what is best of ``at_run_time`` for each.
    ``axes`` are the axes of the mesh that the step names itself, for which the model has to know the mesh.
    """

    values: Mapping[str, Sequence[Any]]
    at_run_time: Sequence[str] = ()
    by: str | None = None
    axes: Sequence[str] = ()


Declare = Callable[[Mapping[str, Any], Mapping[str, int] | None], Choices]
"""``declare(settings, mesh)``: the choices of a model whose other settings are these, on the plan's mesh, size by axis
(None where it is open). It is asked again whenever a setting was given a value: the values may hang on each other."""


def choices(declare: Declare) -> Callable[[Model], Model]:
    """Says what a model's settings may be where a plan leaves them open; a decorator of the model.

    ``@choices(lambda settings, mesh: Choices(values={"chunks": [1, 2, 4]}))``
    """

    def declared(model: Model) -> Model:
        setattr(model, _ATTRIBUTE, declare)
        return model

    return declared


def choices_of(model: Callable[..., Any], settings: Mapping[str, Any], mesh: Mapping[str, int] | None) -> Choices:
    """What a model declares; nothing where it declares nothing.

    Raises whatever the declaration raises, and ``PlanError`` for one that says nothing usable (MW573).
    """
    declare: Declare | None = getattr(model, _ATTRIBUTE, None)
    if declare is None:
        return Choices(values={})
    declared: object = declare(settings, mesh)
    if not isinstance(declared, Choices):
        raise PlanError([problem("MW573", what="it", got=f"a {type(declared).__name__}", wanted="Choices")])
    raise_errors(_flaws(declared))
    return declared


def _flaws(declared: Choices) -> Iterator[Problem]:
    """What is wrong with a declaration, whatever the types in it."""
    values: object = declared.values
    if not isinstance(values, Mapping):
        yield _flaw("values", values, "a mapping of settings to their values")
        return
    for name, listed in values.items():
        if not _is_listed(listed):
            yield _flaw(f"values[{name!r}]", listed, "a sequence of values")
        else:
            yield from _flaws_of_values(f"values[{name!r}]", listed)
    for part, names in (("at_run_time", declared.at_run_time), ("axes", declared.axes)):
        if not _is_listed(names) or not all(isinstance(name, str) for name in names):
            yield _flaw(part, names, "a sequence of names")
    by: object = declared.by
    if not (by is None or isinstance(by, str)):
        yield _flaw("by", by, "a name, or None")


def _flaws_of_values(what: str, listed: Sequence[Any]) -> Iterator[Problem]:
    try:
        written = [value(each) for each in listed]
    except PlanError:
        yield _flaw(what, listed, "values that a plan can hold")
        return
    for _, twice in repeats(written):
        yield _flaw(what, listed, f"{twice} once")


def _is_listed(found: object) -> bool:
    return isinstance(found, Sequence) and not isinstance(found, (str, bytes))


def _flaw(what: str, got: object, wanted: str) -> Problem:
    return problem("MW573", what=what, got=shorten(repr(got)), wanted=wanted)
