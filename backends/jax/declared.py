"""What a model says of its settings that a plan may leave open: the values that the search is to choose from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

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
    """What a model declares; nothing where it declares nothing. Raises whatever the declaration raises."""
    declare: Declare | None = getattr(model, _ATTRIBUTE, None)
    return declare(settings, mesh) if declare is not None else Choices(values={})
