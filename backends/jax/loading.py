"""Loads the model that a plan names: ``package.module:callable`` with the plan's settings."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...dsl.errors import PlanError, Problem, Severity, listing, problem, raise_errors, suggest
from ...dsl.open_settings import named_values, words
from ...dsl.plan import Place, Plan, Remat
from .declared import Choices, choices_of
from .trace import Traced, trace
from .workload import PyTree, Step, Workload

Tracing = Callable[[Step, Sequence[PyTree], Remat | None], Traced]

PLAN_MESH = "plan_mesh"
"""The parameter of a model that wants to know the plan's mesh: one with a region that is written for one device."""


def load_workload(plan: Plan) -> Workload:
    """The workload of the plan's model.

    Raises ``PlanError``: no such module, unknown settings, some that are left to the search, a model that fails.
    """
    place = plan.places.get("model")
    model = imported(plan)
    declared = declared_choices(model, plan)
    left = left_open(plan, declared)
    if left:
        raise PlanError([problem("MW565", plan.places.get(f"with.{left[0]}"), settings=listing(left))])
    try:
        with models_code(plan, "MW313"):
            made = model(**plan.settings, **_of_the_plan(model, plan))
    except PlanError as error:
        raise PlanError(_about_words(error.problems, plan, declared)) from error
    if isinstance(made, Workload):
        return made
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0]) and isinstance(made[1], (tuple, list))):
        raise PlanError([problem("MW314", place, model=plan.model, got=_kind(made))])
    return Workload(made[0], tuple(made[1]))


def declared_choices(model: Callable[..., Any], plan: Plan) -> Choices:
    """What the model declares for the plan's settings that have a value. Raises ``PlanError`` where it fails."""
    _check_settings(model, plan)
    open_to_it = {*words(plan), *(name for name, value in plan.settings.items() if named_values(value) is not None)}
    decided = {name: value for name, value in plan.settings.items() if name not in open_to_it}
    with models_code(plan, "MW313"):
        return choices_of(model, decided, known_mesh(plan))


def left_open(plan: Plan, declared: Choices) -> tuple[str, ...]:
    """The settings that the plan leaves to the search, in the order in which the model declares them."""
    named = [name for name, value in plan.settings.items() if named_values(value) is not None]
    first = [name for name in declared.values if name in {*named, *words(plan)}]
    return (*first, *(name for name in named if name not in first))


def _about_words(problems: Sequence[Problem], plan: Plan, declared: Choices) -> Iterator[Problem]:
    """What a model says of settings that are the word ``auto``, for which it declares nothing, said in our words.

    Of a model that fails it is not known why: that such a word may be the reason is a note.
    """
    plain = [name for name in words(plan) if name not in declared.values]
    may = f" auto alone may stand for: {listing(list(declared.values))}." if declared.values else ""
    for found in problems:
        name = found.numbers.get("setting", found.numbers.get("name"))
        fails = found.code in ("MW313", "MW315")
        if fails or name not in plain:
            yield found
        for word in plain if fails else [name] if name in plain else []:
            place = plan.places.get(f"with.{word}")
            severity: Severity = "note" if fails else "error"
            yield problem("MW566", place, severity=severity, name=word, model=plan.model, may=may)


def trace_workload(plan: Plan, workload: Workload | None = None, by: Tracing = trace) -> Traced:
    """The plan's step as the plan language sees it, traced ``by`` who keeps it. Raises ``PlanError`` where it cannot be
    traced.
    """
    workload = workload or load_workload(plan)
    try:
        with models_code(plan, "MW315"):
            return by(workload.step, workload.args, plan.remat)
    except PlanError as error:
        raise PlanError(_about_words(error.problems, plan, Choices(values={}))) from error


@contextmanager
def models_code(plan: Plan, code: str, **numbers: Any) -> Iterator[None]:
    """Around code that is the user's: whatever it raises, ``sys.exit`` too, is a problem with this code."""
    try:
        yield
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except PlanError as error:
        raise PlanError(_placed(found, plan) for found in error.problems) from error
    except BaseException as error:
        place = plan.places.get("model")
        raise PlanError([problem(code, place, model=plan.model, reason=_reason(error), **numbers)]) from error


def _placed(found: Problem, plan: Plan) -> Problem:
    """A problem that does not know where it stands, at the setting that it is about, or else at the model."""
    setting = found.numbers.get("setting", found.numbers.get("name"))
    place = plan.places.get(f"with.{setting}") or plan.places.get("model")
    return found if found.place else replace(found, place=place)


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    """As with ``python -m``: the modules beside the user are importable."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        if here in sys.path:
            sys.path.remove(here)


def imported(plan: Plan) -> Callable[..., Any]:
    """The plan's model. Raises ``PlanError`` where there is none (MW301), or no such (MW311)."""
    if plan.model is None:
        raise PlanError([problem("MW301", Place(file=plan.file))])
    module_name, _, attribute = (plan.model or "").partition(":")
    with models_code(plan, "MW311"):
        with _working_directory_importable():
            found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    if not callable(found):
        reason = f"'{attribute}' is not callable"
        raise PlanError([problem("MW311", plan.places.get("model"), model=plan.model, reason=reason)])
    return found  # type: ignore[no-any-return]


def _check_settings(model: Callable[..., Any], plan: Plan) -> None:
    """Refuses settings that the model's signature does not have, all at once, and the mesh as a setting."""
    if PLAN_MESH in plan.settings and _asks_for_mesh(model):
        place = plan.places.get(f"with.{PLAN_MESH}")
        told: dict[str, Any] = {"model": plan.model, "name": PLAN_MESH, "suggestion": "The plan's mesh is it."}
        raise PlanError([problem("MW312", place, **told)])
    try:
        parameters = inspect.signature(model).parameters.values()
    except (TypeError, ValueError):
        return
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    raise_errors(
        problem("MW312", plan.places.get(f"with.{name}"), model=plan.model, name=name, suggestion=suggest(name, known))
        for name in plan.settings
        if name not in known
    )


def _of_the_plan(model: Callable[..., Any], plan: Plan) -> dict[str, Any]:
    """What a model is told of a plan beside its settings: the mesh, size by axis, if it asks; None where it is open."""
    return {PLAN_MESH: known_mesh(plan)} if _asks_for_mesh(model) else {}


def _asks_for_mesh(model: Callable[..., Any]) -> bool:
    try:
        return PLAN_MESH in inspect.signature(model).parameters
    except (TypeError, ValueError):
        return False


def known_mesh(plan: Plan) -> dict[str, int] | None:
    """The sizes of the plan's mesh by axis; None where some are open."""
    sizes = {name: size for name, size in plan.mesh.sizes.items() if size is not None}
    return sizes if plan.mesh.axes is not None and len(sizes) == len(plan.mesh.axes) else None


def _kind(value: object) -> str:
    """What a value is, and what a tuple holds."""
    if not isinstance(value, tuple):
        return type(value).__name__
    return f"a tuple of {len(value)} ({', '.join(type(part).__name__ for part in value[:4])})"


def _reason(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
