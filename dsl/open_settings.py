"""Settings of a model that a plan leaves to the search: ``chunks: auto``, or ``chunks: {auto: [1, 2, 4]}``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .errors import flaw, shorten
from .notation import repeats
from .plan import Plan

AUTO = "auto"


def named_values(setting: Any) -> tuple[Any, ...] | None:
    """The values that ``{auto: [...]}`` lets the search choose from; None for any other setting."""
    if isinstance(setting, Mapping) and list(setting) == [AUTO] and isinstance(setting[AUTO], (list, tuple)):
        return tuple(setting[AUTO])
    return None


def words(plan: Plan) -> tuple[str, ...]:
    """The settings that are the word ``auto``: open where the model says so, else a value of the model's own."""
    return tuple(name for name, setting in plan.settings.items() if setting == AUTO)


def check_setting(setting: Any) -> Any:
    """A setting as it stands. Raises ``FlawError`` (MW058, MW059) for ``{auto: ...}`` without values, or one twice."""
    if not (isinstance(setting, Mapping) and list(setting) == [AUTO]):
        return setting
    values = named_values(setting)
    if not values:
        raise flaw("MW058", text=shorten(repr(setting[AUTO])))
    for _, twice in repeats([repr(value) for value in values]):
        raise flaw("MW059", value=shorten(twice))
    return setting
