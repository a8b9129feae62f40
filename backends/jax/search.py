"""Searches the fastest layout of a step that fits, with a proof of how good it is."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import jax

from ... import __version__
from ...dsl.errors import PlanError, Problem, listing, problem, raise_errors
from ...dsl.machine import parse_topology
from ...dsl.open_settings import named_values
from ...dsl.plan import Axis, Fingerprint, Limits, Mesh, Plan, Topology
from ...dsl.reader import load, loads
from ...dsl.resolve import resolve
from ...dsl.rule_checks import unknown_saved
from ...planner import device_assignment
from ...planner.minimise import minimise
from ...planner.search.candidates import NO_REMAT
from ...planner.search.fitted import fitted
from ...planner.search.options import option_problems
from ...planner.search.pins import named_axes
from ...planner.search.pool import Lent, Processes
from ...planner.search.progress import Clock, Progress
from ...planner.search.question import Question
from ...planner.search.result import SearchResult
from ...planner.search.search import Stamp
from ...planner.search.search import search as searched
from ...planner.search.workload import decided_remat
from ...planner.topology import Machine, physical
from .compiled_ahead import Ahead
from .devices import DeviceTopology
from .drafts import Drafts
from .fingerprint import fingerprint
from .layouts import check, region_meshes, region_problems
from .search_options import amount_of, limits_of, mesh_of
from .short_drafts import ShortDrafts
from .short_search import searched_short
from .workload import PyTree, Step


def search(
    step: Step,
    args: Sequence[PyTree],
    *,
    topology: str | Topology | DeviceTopology | None = None,
    plan: Plan | str | os.PathLike[str] | None = None,
    mesh: Mapping[str, int | str | None] | Mesh | None = None,
    limits: Mapping[str, int | str] | Limits | None = None,
    hbm_limit_bytes: int | None = None,
    time_limit_s: float = 60.0,
    seed: int = 0,
    top_k: int = 1,
    pareto: bool = False,
    exact: bool = False,
    compare: bool = True,
    ask_compiler: bool = True,
    donate_argnums: int | Sequence[int] | None = None,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    begin_s: float | None = None,
) -> SearchResult:
    """The fastest plan of ``step`` that is found to fit, and the bound that no plan is below.

    ``args`` is a tuple of pytrees of ``jax.ShapeDtypeStruct``. ``plan`` is a partial plan (a file, its text or a
    ``Plan``): all that it says and that is not ``auto`` is kept to the letter. ``topology``, ``mesh`` (sizes by axis
    name, ``"auto"`` for a hole) and ``limits`` (``{"hbm": "15 GiB"}``, or ``hbm_limit_bytes``) stand in place of the
    plan's own. ``top_k`` asks for so many plans in all, ``pareto`` for the frontier of memory against time, ``exact``
    for a plan with every layout written. A plan that leaves nothing open is returned with the price of the optimum,
    or, without ``compare``, with the best layouts of the values that it does not name. A plan for a TPU that is
    predicted to take nearly what it may is compiled, where libtpu is here, and searched again where it takes more
    (``compiled`` of the result), unless ``ask_compiler`` is false. Donation is as ``apply`` has it. ``on_progress`` is
    told how the search goes on; ``stop`` is asked some times a second whether it is to end with the best so far. The
    time limit counts from the call, or from ``begin_s`` (``time.monotonic``) before it.

    The same seed gives the same answer, unless the time limit cut the search short. Raises ``PlanError`` where a pin,
    a topology or an option is wrong; that nothing fits is an answer (``status``).
    """
    begin_s = time.monotonic() if begin_s is None else begin_s
    asked = asked_plan(plan, topology, mesh, limits, hbm_limit_bytes, option_problems(time_limit_s, seed, top_k))
    machine = machine_of(asked)
    listed = [name for name, value in asked.settings.items() if named_values(value) is not None]
    if listed:
        raise PlanError([problem("MW572", asked.places.get(f"with.{listed[0]}"), settings=listing(listed))])
    with Processes() as workers:  # they load the solver while the step is traced
        workload = Drafts(step, args, donate_argnums=donate_argnums)
        question = question_of(asked, workload, machine, seed=seed, exact=exact, top_k=top_k)
        short = ShortDrafts(workload)
        run = functools.partial(
            searched,
            minimise=minimise,
            begin_s=begin_s,
            last_s=time_limit_s,
            pareto=pareto,
            free_mesh=mesh is None,
            compare=compare,
            on_progress=on_progress,
            stop=stop,
        )

        def find(plan: Plan, time_limit_s: float) -> SearchResult:
            one, found = replace(question, plan=plan), None
            if not pareto and top_k == 1 and not exact:
                times = {"begin_s": begin_s, "time_limit_s": time_limit_s}
                found = searched_short(one, short, run, workers, stamp_of, **times)
            return found or run(one, stamp_of(workload), time_limit_s=time_limit_s, pool=lambda: Lent(workers))

        clock = Clock(time_limit_s, stop, begin_s=begin_s)
        if not ask_compiler:
            return find(question.plan, time_limit_s)
        ahead = Ahead(lambda _: (step, args, donate_argnums))
        return fitted(find, ahead, question.plan, machine, clock, on_progress)


def question_of(asked: Plan, workload: Drafts, machine: Machine, *, seed: int, exact: bool, top_k: int = 1) -> Question:
    """What is asked of a step. Raises ``PlanError`` for a partial plan that is wrong for it."""
    traced = workload.traced(decided_remat(asked))
    named = region_meshes(traced)
    if asked.mesh.axes is None and named:  # no other mesh will do
        asked = replace(asked, mesh=Mesh(axes=tuple(Axis(name=name, size=size) for name, size in named[0])))
    raise_errors([*region_problems(asked, named), *_plan_problems(asked, workload)])
    return Question(
        plan=asked,
        workload=workload,
        machine=machine,
        limit_bytes=None,
        axis_names=named_axes(assignment for _, assignment in traced.in_place),
        keeps_mesh=bool(named),
        seed=seed,
        exact=exact,
        top_k=top_k,
    )


def stamp_of(workload: Drafts) -> Stamp:
    """What a plan for a step remembers of it."""
    return Stamp(versions={"meshwright": __version__, "jax": jax.__version__}, fingerprint=_printer(workload))


def asked_plan(
    plan: Plan | str | os.PathLike[str] | None,
    topology: str | Topology | DeviceTopology | None,
    mesh: Mapping[str, int | str | None] | Mesh | None,
    limits: Mapping[str, int | str] | Limits | None,
    hbm_limit_bytes: int | None,
    wrong: Iterable[Problem] = (),
) -> Plan:
    """The partial plan with what the call says in its place. Raises ``PlanError`` with all that is wrong of it, and
    with what else is ``wrong`` of the call.
    """
    found, problems = Plan(mesh=Mesh(axes=None)), list(wrong)
    said: dict[str, tuple[Any, Callable[[Any], Any]]] = {
        "topology": (topology, _topology),
        "mesh": (mesh, mesh_of),
        "limits": (limits, limits_of),
    }
    if hbm_limit_bytes is not None and limits is not None:
        expected = "one of the two"
        problems.append(problem("MW553", option="hbm_limit_bytes", value="given beside limits", expected=expected))
    elif hbm_limit_bytes is not None:
        said["limits"] = hbm_limit_bytes, lambda given: Limits(hbm_bytes=amount_of("hbm_limit_bytes", given))
    try:
        found = _plan(plan)
    except PlanError as error:
        problems += error.problems
    for name, (value, read) in said.items():
        try:
            found = found if value is None else replace(found, **{name: read(value)})
        except PlanError as error:
            problems += error.problems
    raise_errors(problems)
    return found


def machine_of(asked: Plan) -> Machine:
    """The machine to search on. Raises ``PlanError`` where there is none (MW550), or none such."""
    if asked.topology is None:
        raise PlanError([problem("MW550", asked.mesh.place)])
    return physical(asked.topology)


def _plan(plan: Any) -> Plan:
    if plan is None:
        return Plan(mesh=Mesh(axes=None))
    if isinstance(plan, Plan):
        return plan
    if not isinstance(plan, str | os.PathLike):
        expected = "a Plan, the name of a file or the text of a plan"
        raise PlanError([problem("MW553", option="plan", value=repr(plan), expected=expected)])
    is_text = isinstance(plan, str) and ("\n" in plan or plan.lstrip().startswith("meshwright:"))
    return loads(str(plan)) if is_text else load(plan)


def _topology(given: Any) -> Topology:
    if isinstance(given, DeviceTopology):
        return given.machine.topology
    if not isinstance(given, str | Topology):
        expected = "a name such as 'v5e:4x4', a Topology, or what meshwright.topology makes"
        raise PlanError([problem("MW553", option="topology", value=repr(given), expected=expected)])
    return parse_topology(given) if isinstance(given, str) else given


def _plan_problems(plan: Plan, workload: Drafts) -> list[Problem]:
    """What is wrong with a partial plan for this step on whatever mesh, apart from where its rules meet tensors."""
    remat = decided_remat(plan)
    found = check(replace(plan, result=None, remat=remat), workload.traced(remat))
    found += device_assignment.check(plan)
    on_a_mesh = {"MW105", "MW106", "MW113"} if plan.mesh.axes is None or None in plan.mesh.sizes.values() else set()
    names = remat is not None and remat.names and workload.remat_policies != (NO_REMAT,)
    saved = unknown_saved(plan, workload.tensors) if names else ()
    return [*(p for p in found if p.code not in on_a_mesh), *saved]


def _printer(workload: Drafts) -> Callable[[Plan], Fingerprint]:
    def of(plan: Plan) -> Fingerprint:
        traced = workload.traced(plan.remat)
        return fingerprint(traced, resolve(plan, traced.named_by(plan)).dims)

    return of
