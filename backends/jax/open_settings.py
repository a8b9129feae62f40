"""What a plan leaves open of its model's settings: which, the values to choose from, their combinations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...dsl.errors import PlanError, Problem, listing, problem
from ...dsl.open_settings import named_values
from ...dsl.plan import Mesh, Plan
from ...planner.search.combination import message_of
from ...planner.topology import Machine
from .declared import Choices, choices_of
from .loading import declared_choices, imported, known_mesh, left_open, load_workload, models_code
from .open_meshes import open_meshes


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSettings:
    """The settings that a plan leaves to the search, those first on whose values the others' may hang.

    ``by`` is the one that changes at run time, ``at_run_time`` are those of ``names`` that may change with it.
    """

    plan: Plan
    model: Callable[..., Any] = field(repr=False)
    names: tuple[str, ...]
    at_run_time: tuple[str, ...] = ()
    by: str | None = None

    @property
    def every(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.names, *((self.by,) if self.by is not None else ()))

    @property
    def decided(self) -> dict[str, Any]:
        """The settings that the plan gives a value."""
        return {name: value for name, value in self.plan.settings.items() if name not in self.every}

    def choices(self, decided: Mapping[str, Any]) -> Choices:
        """What the model declares beside these settings. Raises ``PlanError`` where it fails (MW313)."""
        with models_code(self.plan, "MW313"):
            return choices_of(self.model, decided, known_mesh(self.plan))

    def values_of(self, name: str, decided: Mapping[str, Any]) -> tuple[Any, ...]:
        """The values of one setting while others have these."""
        named = named_values(self.plan.settings.get(name))
        return tuple(self.choices(decided).values.get(name, ())) if named is None else named

    @property
    def amounts(self) -> tuple[Any, ...]:
        """The values of ``by``, rising; none where it is not open. Raises ``PlanError`` for others than numbers."""
        if self.by is None:
            return ()
        values = self.values_of(self.by, self.decided)
        wrong = [value for value in values if isinstance(value, bool) or not isinstance(value, (int, float))]
        if wrong or not values:
            told: dict[str, Any] = {"name": self.by, "value": repr(wrong[0]) if wrong else "none"}
            raise PlanError([problem("MW571", self.plan.places.get(f"with.{self.by}"), **told)])
        return tuple(sorted(values))

    @property
    def largest(self) -> dict[str, Any]:
        """The value of ``by`` that the plan is made for; nothing where it is not open."""
        return {} if self.by is None else {self.by: self.amounts[-1]}

    def combinations(self, names: Sequence[str], decided: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """One value for each of ``names``, in all ways; ``decided`` are the settings that have one."""
        if not names:
            yield {}
            return
        first, *others = names
        for value in self.values_of(first, decided):
            for more in self.combinations(others, {**decided, first: value}):
                yield {first: value, **more}

    def filled(self, values: Mapping[str, Any]) -> Plan:
        """The plan with these values for what is open."""
        return replace(self.plan, settings={**self.plan.settings, **values})

    def on(self, mesh: Mesh) -> OpenSettings:
        """The same of the plan with a mesh, on which the values may hang."""
        return replace(self, plan=replace(self.plan, mesh=mesh))

    def first_accepted(self, machine: Machine | None = None) -> Plan:
        """The plan with the first values that the model accepts, and a mesh if it has to know one and has a machine.

        Raises ``PlanError`` where it accepts none (MW567).
        """
        refused: list[PlanError] = []
        for values in self.combinations(self.names, {**self.decided, **self.largest}):
            plan = self.filled({**self.largest, **values})
            try:
                return _accepted(plan, self.axes_of(plan), machine)
            except PlanError as error:
                refused.append(error)
        raise none_accepted(self, refused)

    def axes_of(self, plan: Plan) -> tuple[str, ...]:
        """The axes for which the model has to know the plan's mesh, which is open; none where it is known."""
        return () if known_mesh(plan) is not None else tuple(self.choices(plan.settings).axes)


def _accepted(plan: Plan, axes: Sequence[str], machine: Machine | None) -> Plan:
    """The plan, or with a mesh of these axes, if its model takes it. Raises ``PlanError`` if not."""
    if axes and machine is not None:
        return replace(plan, mesh=open_meshes(plan, machine, axes).listed[0])
    load_workload(plan)
    return plan


def none_accepted(left: OpenSettings, refused: Sequence[PlanError]) -> PlanError:
    """The error of settings whose values are refused in every combination, or that have none.

    What all of them are refused for hangs on none of the values: that is said as it is.
    """
    common = list(_common(left.plan, refused))
    if common:
        return PlanError(common)
    names = left.every or ("mesh",)
    told: dict[str, Any] = {
        "model": left.plan.model,
        "count": len(refused),
        "settings": listing(names),
        "reason": message_of(refused[0]) if refused else "there is none.",
    }
    return PlanError([problem("MW567", left.plan.places.get(f"with.{names[0]}", left.plan.mesh.place), **told)])


def _common(plan: Plan, refused: Sequence[PlanError]) -> Iterator[Problem]:
    """The problems of all errors alike; where there is one error, those that are not the model's with its settings."""
    first, *others = refused or [PlanError([])]
    about = [place for name, place in plan.places.items() if name == "model" or name.startswith("with.")]
    for found in first.problems:
        same = (found.code, found.message, found.place)
        alike = (any(same == (o.code, o.message, o.place) for o in other.problems) for other in others)
        if all(alike) if others else found.place not in about:
            yield found


def open_settings(plan: Plan) -> OpenSettings:
    """What a plan leaves open. Raises ``PlanError`` for a model that cannot be imported, or fails to declare."""
    model = imported(plan)
    declared = declared_choices(model, plan)
    names = left_open(plan, declared)
    by = declared.by if declared.by in names else None
    others = tuple(name for name in names if name != by)
    return OpenSettings(
        plan=plan,
        model=model,
        names=others,
        at_run_time=tuple(name for name in others if name in declared.at_run_time),
        by=by,
    )
