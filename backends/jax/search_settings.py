"""Searches a plan with the model that it names: the settings that it leaves open are chosen with the layouts."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

from ...dsl.errors import PlanError, listing, problem
from ...dsl.plan import Limits, Mesh, Plan, Topology
from ...planner.estimate.limit import memory_limit
from ...planner.search.candidates import Meshes
from ...planner.search.choosing import Choosing
from ...planner.search.combination import Combination
from ...planner.search.fitted import fitted
from ...planner.search.options import option_problems
from ...planner.search.pool import Processes
from ...planner.search.progress import Clock, Progress
from ...planner.search.result import SearchResult
from ...planner.search.run_time import Table, table_of
from ...planner.search.workload import decided_remat
from ...planner.topology import Machine
from .compiled_ahead import Ahead
from .devices import DeviceTopology
from .estimate import drafts_of
from .loading import load_workload, trace_workload
from .model_steps import ModelSteps
from .open_meshes import name_of, open_meshes
from .open_settings import OpenSettings, none_accepted, open_settings
from .search import asked_plan, machine_of, search
from .settings_answer import Answer
from .workload import PyTree, Step

TABLE = 0.3  # of the time, for the table of what is best at run time
MOST = 4096  # combinations, each of which is a step of its own


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
    ask_compiler: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    begin_s: float | None = None,
) -> SearchResult:
    """``search`` of the model that a plan names, over the settings too that the plan leaves open.

    Each combination of their values is a step of its own; so is each mesh of a model that has to know an open one.
    ``settings`` of the result has those that were looked at, with their predicted times. Time alone is weighed, not
    what a setting may change of what is learnt. The bound holds for all combinations. Where settings are open,
    ``top_k`` and ``pareto`` ask for the best plans of different combinations. Options are as ``search`` has them.
    Raises ``PlanError`` as that does, and where the model accepts no combination (MW567).
    """
    begin_s = time.monotonic() if begin_s is None else begin_s
    asked = asked_plan(plan, topology, mesh, limits, None, option_problems(time_limit_s, seed, top_k))
    machine = machine_of(asked)
    left = open_settings(asked)
    if left.every or left.axes_of(asked):

        def find(plan: Plan, time_limit_s: float) -> SearchResult:
            clock = Clock(time_limit_s, stop, begin_s=begin_s)
            every = _Search(open_settings(plan), machine, clock, seed=seed, exact=exact, on_progress=on_progress)
            return every.result(top_k=top_k, pareto=pareto)

        clock = Clock(time_limit_s, stop, begin_s=begin_s)
        if not ask_compiler:
            return find(asked, time_limit_s)
        return fitted(find, Ahead(_step), asked, machine, clock, on_progress)
    workload = load_workload(asked)
    drafts = drafts_of(workload.step, workload.args, workload.donated)
    known = partial(drafts.traced, noting=True)  # a step that cannot be traced is a problem at the model's line
    trace_workload(replace(asked, remat=decided_remat(asked)), workload, known)
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
        ask_compiler=ask_compiler,
        donate_argnums=workload.donated,
        on_progress=on_progress,
        stop=stop,
        begin_s=begin_s,
    )


def _step(plan: Plan) -> tuple[Step, Sequence[PyTree], Any]:
    """The step of the model that a plan names, its arguments, those that it donates."""
    workload = load_workload(plan)
    return workload.step, workload.args, workload.donated


class _On(NamedTuple):
    """A mesh to read a step on, by its name; ``why`` there is none, or how many ``others`` nobody looks at."""

    name: str
    mesh: Mesh
    why: PlanError | None = None
    others: int = 0


class _Search:
    """A search over the combinations of what is left open."""

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
        self._meshes: list[Meshes] = []
        self._limit_bytes, _ = memory_limit(machine, left.plan.limits.hbm_bytes)

    def result(self, *, top_k: int, pareto: bool) -> SearchResult:
        """Chooses, and tells."""
        every = self._numbered(self._combinations())
        with Processes() as workers:
            steps = ModelSteps(self._machine, workers, seed=self._seed, exact=self._exact)
            clock = self._clock.part(1 - TABLE) if self._left.by is not None else self._clock
            choosing = Choosing(every, steps, limit_bytes=self._limit_bytes, clock=clock, on_progress=self._on_progress)
            choosing.run()
            table = self._table(choosing, steps)
            answer = Answer(
                left=self._left,
                choosing=choosing,
                table=table,
                steps=steps,
                meshes=tuple(self._meshes),
                clock=self._clock,
            )
            if choosing.best is not None:
                return answer.best(top_k=top_k, pareto=pareto)
        if all(one.is_out and one.found is None and not one.too_large for one in every):
            raise none_accepted(self._left, [one.error for one in every if one.error is not None])
        return answer.nothing()

    def _combinations(self) -> Iterator[Combination]:
        """One value for each open setting; on each mesh where the model has to know an open one."""
        left = self._left
        by_axes: dict[tuple[str, ...], Plan] = {}
        for values in left.combinations(left.names, {**left.decided, **left.largest}):
            plan = left.filled({**left.largest, **values})
            axes = left.axes_of(plan)
            if axes:
                by_axes.setdefault(axes, plan)
            else:
                yield Combination(index=0, settings=values, plan=plan)
        for axes, plan in by_axes.items():
            for on in self._on_meshes(plan, axes):
                yield from self._on_mesh(on, axes)

    def _on_mesh(self, on: _On, axes: tuple[str, ...]) -> Iterator[Combination]:
        """The combinations of steps that name these axes; what values there are may hang on the mesh."""
        left = self._left.on(on.mesh)
        for values in left.combinations(left.names, {**left.decided, **left.largest}):
            plan = left.filled({**left.largest, **values})
            if tuple(left.choices(plan.settings).axes) == axes:
                one = Combination(index=0, settings=values, plan=plan, on=on.name, others=on.others)
                if on.why is not None:
                    one.refuse(on.why)
                yield one

    def _on_meshes(self, plan: Plan, axes: tuple[str, ...]) -> Iterator[_On]:
        """Names and meshes for steps that name axes, or why there are none; those left out are one that is not read."""
        try:
            found = open_meshes(plan, self._machine, axes)
        except PlanError as error:
            yield _On("auto", plan.mesh, error)
            return
        for mesh in found.listed:
            yield _On(name_of(mesh), replace(mesh, place=plan.mesh.place))
        if found.left_out:
            yield _On(f"{found.left_out} others", plan.mesh, others=found.left_out)
        self._meshes.append(found)

    def _numbered(self, found: Iterable[Combination]) -> list[Combination]:
        """All of them with their indices. Raises ``PlanError`` for more than anyone looks at (MW568)."""
        every = list(islice(found, MOST + 1))
        if len(every) > MOST:
            names = self._left.every or ("mesh",)
            place = self._left.plan.places.get(f"with.{names[0]}", self._left.plan.mesh.place)
            raise PlanError([problem("MW568", place, settings=listing(names), most=MOST)])
        for index, one in enumerate(every):
            one.index = index
        return every

    def _table(self, choosing: Choosing, steps: ModelSteps) -> Table | None:
        """The table for the best combination's plan; where it finds a better one than is known, that is taken."""
        left, best = self._left, choosing.best
        if left.by is None or best is None or best.priced is None:
            return None
        steps.forget()
        table = table_of(
            best.priced.plan,
            left.by,
            self._numbered(self._at_run_time(best)),
            steps,
            limit_bytes=self._limit_bytes,
            clock=self._clock,
            tell=lambda doing: self._tell(doing, choosing),
        )
        known = {repr((one.plan.settings, one.on)): one for one in choosing.every}
        for one in table.every:
            same = known.get(repr((one.plan.settings, one.on)))
            if (
                same is not None
                and not same.is_out
                and one.priced is not None
                and one.priced.plan.rules == best.priced.plan.rules
            ):
                same.seen = True
                same.take(one.priced)
        return table

    def _at_run_time(self, best: Combination) -> Iterator[Combination]:
        """For each amount, the largest first, the combinations of what may change with it; all else as it is best."""
        left = self._left.on(best.priced.plan.mesh if best.priced else best.plan.mesh)
        fixed = {name: value for name, value in best.settings.items() if name not in left.at_run_time}
        for amount in reversed(left.amounts):
            own: dict[str, Any] = {**fixed, str(left.by): amount}
            for values in left.combinations(left.at_run_time, {**left.decided, **own}):
                settings = {str(left.by): amount, **values}
                yield Combination(index=0, settings=settings, plan=left.filled({**own, **values}), on=best.on)

    def _tell(self, doing: str, choosing: Choosing) -> None:
        if self._on_progress is not None:
            self._on_progress(choosing.state(f"the table: {doing}", self._clock))
