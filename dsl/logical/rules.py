"""Logical axis rules and logical names, as plain immutable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import Problem
from ..plan import Place

Name = str | tuple[str, ...] | None
"""What a dim is called: a logical name, mesh axes outright, or nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalRule:
    """A dim of this logical name is split over these mesh axes, major first; over none: it is whole."""

    name: str
    axes: tuple[str, ...]
    place: Place = field(default=Place(), compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalRules:
    """A file of rules, in order of precedence.

    ``mesh_axes`` are the axes in order, None where the file does not say. ``ici`` and ``dcn`` are MaxText's sizes by
    axis, inside a slice and across slices, -1 for one that fills what is left. ``notes`` says what was not read.
    """

    rules: tuple[LogicalRule, ...]
    mesh_axes: tuple[str, ...] | None = None
    ici: Mapping[str, int] = field(default_factory=dict)
    dcn: Mapping[str, int] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict, compare=False)  # by field: "ici_data_parallelism"
    notes: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorNames:
    """The logical names of a tensor's dims; dims beyond the names have none.

    ``literal`` says how names are looked up. False is Linen's way: the first rule whose axes are still free. True is
    NNX's: a name's last rule, and a name without a rule is a mesh axis itself. ``strange`` says what about the names
    cannot be followed.
    """

    names: tuple[Name, ...]
    literal: bool = False
    strange: str | None = None
    place: Place | None = field(default=None, compare=False)
