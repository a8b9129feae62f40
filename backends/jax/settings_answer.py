"""The answer of a search over settings, put together from what is known of their combinations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...dsl.plan import Plan
from ...planner.search.candidates import Meshes
from ...planner.search.choosing import Choosing
from ...planner.search.combination import Combination, rows_of
from ...planner.search.others import undominated
from ...planner.search.pins import pins
from ...planner.search.progress import Clock
from ...planner.search.result import MeshCount, PricedPlan, SearchResult, status_of
from ...planner.search.run_time import Table
from ...planner.search.settings_rows import SettingsTried
from .model_steps import ModelSteps
from .open_settings import OpenSettings

ONE_MESH = MeshCount(distinct=1, covered=0, impossible=0, tried=1, left_out=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What there is to tell when a search over settings has ended."""

    left: OpenSettings
    choosing: Choosing
    table: Table | None
    steps: ModelSteps
    meshes: tuple[Meshes, ...]
    clock: Clock

    def best(self, *, top_k: int, pareto: bool) -> SearchResult:
        """The answer with the best plan, which there is."""
        ranked = self.choosing.ranked
        wanted = ranked if pareto else ranked[:top_k]
        bound_s = min(self.choosing.bound_s, ranked[0].step_time_s)
        finished = [self._finished(one, bound_s) for one in wanted]
        return SearchResult(
            plan=self._with_table(finished[0].plan),
            status=status_of(ranked[0].step_time_s, bound_s),
            estimate=finished[0].estimate,
            bound_s=bound_s,
            tried_bound_s=min(min(map(_tried_bound_s, self._read())), ranked[0].step_time_s),
            alternatives=tuple(finished[1:top_k]),
            frontier=tuple(undominated(finished)) if pareto else (),
            candidates=ranked[0].found.candidates if ranked[0].found else (),
            meshes=self._meshes(),
            settings=self._settings(),
            interrupted=self.clock.stopped,
            search_s=round(self.clock.elapsed_s, 3),
        )

    def nothing(self) -> SearchResult:
        """The answer where no combination has a plan: none fits, which is proven, or not."""
        infeasible = all(one.is_out for one in self.choosing.every)
        first = self._searched()
        return SearchResult(
            plan=None,
            status="infeasible" if infeasible else "unknown",
            estimate=None,
            bound_s=None if infeasible else self.choosing.bound_s,
            tried_bound_s=None,
            candidates=first.candidates if first else (),
            meshes=self._meshes(),
            settings=self._settings(),
            misfit=first.misfit if first and infeasible else None,
            interrupted=self.clock.stopped,
            search_s=round(self.clock.elapsed_s, 3),
        )

    def _searched(self) -> SearchResult | None:
        """The first whole search."""
        return next((one.found for one in self.choosing.every if one.found is not None), None)

    def _meshes(self) -> MeshCount:
        """How many meshes there are: all that a step was to be read on, else those of one combination of settings."""
        if self.meshes:
            distinct, covered = sum(m.distinct for m in self.meshes), sum(m.covered for m in self.meshes)
            impossible = sum(m.impossible for m in self.meshes)
            listed = sum(len(m.listed) for m in self.meshes)
            tried = min(listed, len({one.plan.mesh for one in self._read() if one.on and one.seen}))
            left_out = sum(m.left_out for m in self.meshes) + listed - tried
            return MeshCount(distinct=distinct, covered=covered, impossible=impossible, tried=tried, left_out=left_out)
        first, best = self._searched(), self.choosing.best
        found = best.found if best is not None and best.found is not None else first
        return found.meshes if found is not None else ONE_MESH

    def _read(self) -> list[Combination]:
        """The combinations that are to be read."""
        return [one for one in self.choosing.every if not one.others]

    def _finished(self, one: Combination, bound_s: float) -> PricedPlan:
        """A combination's plan with its ``result:`` block; what the user had decided is what the plan given says."""
        if one.priced is None:
            raise ValueError("a combination without a plan is not finished")
        bound_s = min(bound_s, one.step_time_s)
        plan = self.steps.stamped(one, one.priced, bound_s, status_of(one.step_time_s, bound_s))
        if plan.result is not None:
            plan = replace(plan, result=replace(plan.result, pins=pins(self.left.plan)))
        return replace(one.priced, plan=plan)

    def _with_table(self, plan: Plan) -> Plan:
        if self.table is None or plan.result is None:
            return plan
        return replace(plan, result=replace(plan.result, at_run_time=self.table.entries))

    def _settings(self) -> SettingsTried:
        rows = rows_of(self.choosing.every)
        weighty = tuple(name for name in self.left.names if name not in self.left.at_run_time)
        if self.table is None:
            return replace(rows, weighty=weighty)
        looked_at, total = self.table.looked_at, len(self.table.every)
        return replace(rows, weighty=weighty, table_priced=looked_at, table_total=total)


def _tried_bound_s(one: Combination) -> float:
    found = one.found
    return one.bound_s if found is None or found.tried_bound_s is None else max(one.bound_s, found.tried_bound_s)
