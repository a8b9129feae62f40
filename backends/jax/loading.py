"""Loads the model that a plan names: ``package.module:callable`` with the plan's settings."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ...dsl.errors import PlanError, Problem, problem, raise_errors, suggest
from ...dsl.plan import Place, Plan
from .trace import Traced, trace
from .workload import Workload

PLAN_MESH = "plan_mesh"
"""The parameter of a model that wants to know the plan's mesh: one with a region that is written for one device."""


def load_workload(plan: Plan) -> Workload:
    """The workload of the plan's model. Raises ``PlanError``: no such module, unknown settings, a model that fails."""
    if plan.model is None:
        raise PlanError([problem("MW301", Place(file=plan.file))])
    place = plan.places.get("model")
    model = _imported(plan)
    _check_settings(model, plan)
    with models_code(plan, "MW313"):
        made = model(**plan.settings, **_of_the_plan(model, plan))
    if isinstance(made, Workload):
        return made
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0]) and isinstance(made[1], (tuple, list))):
        raise PlanError([problem("MW314", place, model=plan.model, got=_kind(made))])
    return Workload(made[0], tuple(made[1]))


def trace_workload(plan: Plan, workload: Workload | None = None) -> Traced:
    """The plan's step as the plan language sees it. Raises ``PlanError`` where it cannot be traced."""
    workload = workload or load_workload(plan)
    with models_code(plan, "MW315"):
        return trace(workload.step, workload.args, plan.remat)


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


def _imported(plan: Plan) -> Callable[..., Any]:
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
    """Refuses settings that the model's signature does not have, all at once."""
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
    try:
        asks = PLAN_MESH in inspect.signature(model).parameters
    except (TypeError, ValueError):
        return {}
    if asks and PLAN_MESH in plan.settings:
        place = plan.places.get(f"with.{PLAN_MESH}")
        raise PlanError(
            [problem("MW312", place, model=plan.model, name=PLAN_MESH, suggestion="The plan's mesh is it.")]
        )
    known = plan.mesh.axes is not None and None not in plan.mesh.sizes.values()
    return {PLAN_MESH: dict(plan.mesh.sizes) if known else None} if asks else {}


def _kind(value: object) -> str:
    """What a value is, and what a tuple holds."""
    if not isinstance(value, tuple):
        return type(value).__name__
    return f"a tuple of {len(value)} ({', '.join(type(part).__name__ for part in value[:4])})"


def _reason(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__
