"""Searches a plan with the model that it names: the settings that it leaves open are chosen with the layouts."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...dsl.plan import Limits, Mesh, Plan, Topology
from ...planner.estimate.limit import memory_limit
from ...planner.search.choosing import Choosing
from ...planner.search.combination import Combination, rows_of
from ...planner.search.pool import Processes
from ...planner.search.progress import Clock, Progress
from ...planner.search.result import MeshCount, PricedPlan, SearchResult, status_of
from ...planner.search.run_time import Table, table_of
from ...planner.search.settings_rows import SettingsTried
from ...planner.topology import Machine
from .devices import DeviceTopology
from .loading import load_workload, trace_workload
from .model_steps import ModelSteps
from .open_settings import OpenSettings, none_accepted, open_settings
from .search import asked_plan, check_options, machine_of, search

TABLE = 0.3  # of the time, for the table of what is best at run time


def search_plan(
    plan: Plan | str | os.PathLike[str],
    *,
    topology: str | Topology | DeviceTopology | None = None,
    mesh: Mapping[str, int | str | None] | Mesh | None = None,
    limits: Mapping[str, int | str] | Limits | None = None,
    time_limit_s: float = 60.0,
    seed: int = 0,
    top_k: int = 1,
    pareto: bool = False,
    exact: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> SearchResult:
    """``search`` of the model that a plan names, over the settings too that the plan leaves open.

    Each combination of their values is a step; ``settings`` of the result has those that were looked at, with their
    predicted times. Time alone is weighed: that a setting may change what is learnt is not. The bound holds for all
    combinations. With settings left open, ``top_k`` and ``pareto`` are of the best plans of different combinations.
    Options are as ``search`` has them. Raises ``PlanError`` as that does, and where the model accepts no combination.
    """
    check_options(time_limit_s, seed, top_k)
    asked = asked_plan(plan, topology, mesh, limits, None)
    machine = machine_of(asked)
    left = open_settings(asked)
    if left.every:
        chosen = _Chosen(left, machine, Clock(time_limit_s, stop), seed=seed, exact=exact, on_progress=on_progress)
        return chosen.result(top_k=top_k, pareto=pareto)
    workload = load_workload(asked)
    trace_workload(replace(asked, remat=None), workload)  # one that cannot be traced is a problem at the model's line
    return search(
        workload.step,
        workload.args,
        plan=asked,
        mesh=asked.mesh if mesh is not None else None,
        time_limit_s=time_limit_s,
        seed=seed,
        top_k=top_k,
        pareto=pareto,
        exact=exact,
        donate_argnums=workload.donated,
        on_progress=on_progress,
        stop=stop,
    )


class _Chosen:
    """A search over the combinations of open settings."""

    def __init__(
        self,
        left: OpenSettings,
        machine: Machine,
        clock: Clock,
        *,
        seed: int,
        exact: bool,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self._left, self._machine, self._clock, self._on_progress = left, machine, clock, on_progress
        self._seed, self._exact = seed, exact
        self._limit_bytes, _ = memory_limit(machine, left.plan.limits.hbm_bytes)

    def result(self, *, top_k: int, pareto: bool) -> SearchResult:
        """Chooses, and tells."""
        left, amounts = self._left, self._left.amounts
        largest = {left.by: amounts[-1]} if left.by is not None and amounts else {}
        every = self._combinations(left.names, {**left.decided, **largest}, largest)
        with Processes() as workers:
            steps = ModelSteps(self._machine, workers, seed=self._seed, exact=self._exact)
            clock = self._clock.part(1 - TABLE) if amounts else self._clock
            choosing = Choosing(every, steps, limit_bytes=self._limit_bytes, clock=clock, on_progress=self._on_progress)
            choosing.run()
            if choosing.best is None:
                return self._nothing(choosing)
            table = self._table(choosing, steps) if amounts else None
            return self._result(choosing, steps, table, top_k=top_k, pareto=pareto)

    def _combinations(
        self, names: tuple[str, ...], decided: Mapping[str, Any], besides: Mapping[str, Any]
    ) -> list[Combination]:
        """All combinations of values of some settings; ``besides`` are values that they all have."""
        found = self._left.combinations(names, decided)
        return [
            Combination(index=index, settings=values, plan=self._left.filled({**besides, **values}))
            for index, values in enumerate(found)
        ]

    def _table(self, choosing: Choosing, steps: ModelSteps) -> Table | None:
        """The table for the best combination's plan; where it finds a better one than is known, that is taken."""
        left, best = self._left, choosing.best
        if left.by is None or best is None or best.priced is None:
            return None
        fixed = {name: value for name, value in best.settings.items() if name not in left.at_run_time}
        every = []
        for amount in reversed(left.amounts):
            own = {**fixed, left.by: amount}
            for one in self._combinations(left.at_run_time, {**left.decided, **own}, own):
                one.index, one.settings = len(every), {left.by: amount, **one.settings}
                every.append(one)
        steps.forget()
        table = table_of(
            best.priced.plan,
            left.by,
            every,
            steps,
            limit_bytes=self._limit_bytes,
            clock=self._clock,
            tell=lambda doing: self._tell(doing, choosing),
        )
        known = {repr(one.plan.settings): one for one in choosing.every}
        for one in table.every:
            same = known.get(repr(one.plan.settings))
            if same is not None and one.priced is not None and one.priced.plan.rules == best.priced.plan.rules:
                same.seen = True
                same.take(one.priced)
        return table

    def _result(
        self, choosing: Choosing, steps: ModelSteps, table: Table | None, *, top_k: int, pareto: bool
    ) -> SearchResult:
        ranked = choosing.ranked
        best = ranked[0]
        bound_s = min(choosing.bound_s, best.step_time_s)
        finished = [self._finished(one, steps, min(bound_s, one.step_time_s)) for one in ranked]
        plan = finished[0].plan
        if table is not None and plan.result is not None:
            plan = replace(plan, result=replace(plan.result, at_run_time=table.entries))
        found = best.found or next((one.found for one in choosing.every if one.found is not None), None)
        return SearchResult(
            plan=plan,
            status=status_of(best.step_time_s, bound_s),
            estimate=finished[0].estimate,
            bound_s=bound_s,
            tried_bound_s=min(min(map(_tried_bound_s, choosing.every)), best.step_time_s),
            alternatives=tuple(finished[1:top_k]),
            frontier=tuple(_undominated(finished)) if pareto else (),
            candidates=best.found.candidates if best.found else (),
            meshes=found.meshes if found else MeshCount(distinct=1, covered=0, impossible=0, tried=1, left_out=0),
            settings=self._told(choosing, table),
            interrupted=self._clock.stopped,
            search_s=round(self._clock.elapsed_s, 3),
        )

    def _finished(self, one: Combination, steps: ModelSteps, bound_s: float) -> PricedPlan:
        if one.priced is None:
            raise ValueError("a combination without a plan is not finished")
        status = status_of(one.step_time_s, bound_s)
        return replace(one.priced, plan=steps.stamped(one, one.priced, bound_s, status))

    def _nothing(self, choosing: Choosing) -> SearchResult:
        """The answer where no combination has a plan. Raises ``PlanError`` where none is a step at all."""
        found = next((one.found for one in choosing.every if one.found is not None), None)
        if found is None and all(one.is_out for one in choosing.every):
            raise none_accepted(self._left, [one.why for one in choosing.every])
        every_bound_s = choosing.bound_s
        infeasible = all(one.is_out for one in choosing.every)
        return SearchResult(
            plan=None,
            status="infeasible" if infeasible else "unknown",
            estimate=None,
            bound_s=None if infeasible else every_bound_s,
            tried_bound_s=None,
            meshes=found.meshes if found else MeshCount(distinct=0, covered=0, impossible=0, tried=0, left_out=0),
            candidates=found.candidates if found else (),
            settings=self._told(choosing, None),
            misfit=found.misfit if found and infeasible else None,
            interrupted=self._clock.stopped,
            search_s=round(self._clock.elapsed_s, 3),
        )

    def _told(self, choosing: Choosing, table: Table | None) -> SettingsTried:
        rows = rows_of(choosing.every)
        weighty = tuple(name for name in self._left.names if name not in self._left.at_run_time)
        if table is None:
            return replace(rows, weighty=weighty)
        return replace(rows, weighty=weighty, table_priced=table.looked_at, table_total=len(table.every))

    def _tell(self, doing: str, choosing: Choosing) -> None:
        if self._on_progress is not None:
            self._on_progress(choosing.state(f"the table: {doing}", self._clock))


def _tried_bound_s(one: Combination) -> float:
    found = one.found
    return one.bound_s if found is None or found.tried_bound_s is None else max(one.bound_s, found.tried_bound_s)


def _undominated(plans: Sequence[PricedPlan]) -> Iterator[PricedPlan]:
    """Of plans in the order of their times those that take less memory than all before."""
    least = math.inf
    for one in plans:
        if one.peak_bytes < least:
            yield one
            least = one.peak_bytes
