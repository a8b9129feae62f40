"""Loads the model that a plan names: ``package.module:callable`` with the plan's settings."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ...dsl.errors import PlanError, problem, raise_errors, suggest
from ...dsl.plan import Place, Plan
from ...dsl.tensors import Tensor
from .trace import Traced, trace
from .workload import Workload


def load_workload(plan: Plan) -> Workload:
    """The workload of the plan's model. Raises ``PlanError``: no such module, unknown settings, a model that fails."""
    if plan.model is None:
        raise PlanError([problem("MW301", Place(file=plan.file))])
    place = plan.places.get("model")
    model = _imported(plan.model, place)
    _check_settings(model, plan)
    made = _called(model, plan, place)
    if isinstance(made, Workload):
        return made
    if not (isinstance(made, tuple) and len(made) == 2 and callable(made[0]) and isinstance(made[1], (tuple, list))):
        raise PlanError([problem("MW314", place, model=plan.model, got=type(made).__name__)])
    return Workload(made[0], tuple(made[1]))


def trace_workload(plan: Plan, workload: Workload | None = None) -> Traced:
    """The plan's step as the plan language sees it. Raises ``PlanError`` where it cannot be traced."""
    workload = workload or load_workload(plan)
    try:
        return trace(workload.step, workload.args, plan.remat)
    except PlanError:
        raise
    except Exception as error:
        raise PlanError([problem("MW315", plan.places.get("model"), reason=_first_line(error))]) from error


def tensor_table(plan: Plan) -> list[Tensor]:
    """Every tensor of the plan's model that the plan can name."""
    return list(trace_workload(plan).tensors)


@contextmanager
def _working_directory_importable() -> Iterator[None]:
    """As with ``python -m``: the modules beside the user are importable."""
    sys.path.insert(0, os.getcwd())
    try:
        yield
    finally:
        sys.path.remove(os.getcwd())


def _imported(model: str, place: Place | None) -> Callable[..., Any]:
    module_name, _, attribute = model.partition(":")
    try:
        with _working_directory_importable():
            found: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, SyntaxError, ValueError) as error:
        raise PlanError([problem("MW311", place, model=model, reason=_first_line(error))]) from error
    if not callable(found):
        raise PlanError([problem("MW311", place, model=model, reason=f"'{attribute}' is not callable")])
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


def _called(model: Callable[..., Any], plan: Plan, place: Place | None) -> Any:
    try:
        return model(**plan.settings)
    except PlanError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {_first_line(error)}"
        raise PlanError([problem("MW313", place, model=plan.model, reason=reason)]) from error


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
