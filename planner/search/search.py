"""The whole search: a partial plan completed, with what is proven, or the reason why it cannot be."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from ...dsl.plan import Fingerprint, Mesh, Plan, Result
from ..estimate.figures import Estimate
from ..estimate.limit import is_near, memory_limit
from .candidates import NO_REMAT
from .misfit import misfit, num_changes, of_plan
from .others import alternatives, distinct_plans, frontier, undominated, undominated_first
from .pins import pinned, pins
from .pool import Pool, Processes
from .progress import Clock, Progress, gap_of
from .question import Answer, Means, Question, answer
from .result import MeshCount, PricedPlan, Row, SearchResult, status_of
from .task import Status
from .tried import Tried
from .written import Minimise

NO_MESHES = MeshCount(distinct=1, covered=0, impossible=0, tried=0, left_out=0)
"""Where none was looked at but the one that a plan gives."""
LONGER = 0.7
"""Of the time after a search's own, that it has as long as nothing is found."""

HELPED, LEAST_HELPED_S, CHANGED_S = 2.0, 10.0, 4.0
"""How many times as long as it took to prove that nothing fits it is looked for what would help, and how long at least,
more for each change of what was asked: whoever asks within which limit there is a plan waits for no more.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a plan remembers of how it was made: the software, and the workload that it is for."""

    versions: Mapping[str, str]
    fingerprint: Callable[[Plan], Fingerprint]


def search(
    question: Question,
    stamp: Stamp,
    *,
    minimise: Minimise,
    time_limit_s: float,
    begin_s: float | None = None,
    last_s: float | None = None,
    pareto: bool = False,
    free_mesh: bool = True,
    compare: bool = True,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
    pool: Callable[[], Pool] = Processes,
) -> SearchResult:
    """Completes a question's plan.

    A plan without holes is returned as it is, with the optimum that it is compared with: of the same workload on the
    same machine without pins, on any mesh (``free_mesh``) or on the plan's; without ``compare`` it is searched as any
    other plan, for it leaves computed values open. ``pool`` makes the workers, at most once. The time counts from
    ``begin_s`` (``time.monotonic``) where that was before; of what there is besides until ``last_s`` most is for who
    has found nothing, or a plan that is not near its limit.
    Raises ``PlanError`` where a pin is wrong, or forbids every mesh.
    """
    longer_s = LONGER * max((last_s or 0.0) - time_limit_s, 0.0)
    clock = Clock(time_limit_s, stop, begin_s=begin_s, longer_s=longer_s)
    machine = question.machine
    limit, limit_of = memory_limit(machine, question.plan.limits.hbm_bytes)
    question = replace(question, plan=_decided(question), limit_bytes=limit)
    with ExitStack() as held:
        means = Means(pool=_once(pool, held), minimise=minimise, on_progress=on_progress)
        if compare and is_complete(question):
            return _compared(question, stamp, means, clock, free_mesh)
        more = pareto or question.top_k > 1
        found = answer(question, means, clock, more=more)
        if found.best is not None and (more or limit is None or is_near(found.best.estimate, limit)):
            clock.found()
        if found.best is None and more and not clock.over:
            found = found.further(1, clock)
        if found.best is None:
            return _nothing(question, found, (limit, limit_of), stamp, means, clock)
        if question.top_k > 1 and not clock.over:
            found = found.further(question.top_k, clock)
        others = alternatives(question, found, means, clock) if question.top_k > 1 else ()
        points = frontier(question, found.plans[0], means, clock) if pareto else ()
        first = found.best
        if more and not clock.over:
            found = found.further(1, clock)  # what is left of the time proves the best
    # The time may have ended before the best was found where it was looked for.
    best, *slower = sorted(distinct_plans((*found.plans, *others, *points)), key=undominated_first)
    listed = [one for one in slower if one in (first, found.best) or one in others][: question.top_k - 1]
    points = tuple(undominated((best, *points, *found.plans, *others))) if pareto else ()
    spares = [one for one in slower if one not in listed] if question.plan.limits.hbm_bytes is not None else ()
    return replace(
        _result(question, found, best, stamp, clock),
        alternatives=tuple(_finished(question, one, found.bound_s, stamp) for one in listed),
        frontier=tuple(_finished(question, one, found.bound_s, stamp) for one in points),
        spares=tuple(_finished(question, one, found.bound_s, stamp) for one in spares),
        interrupted=clock.stopped,
        search_s=round(clock.elapsed_s, 3),
    )


def is_complete(question: Question) -> bool:
    """Whether the plan leaves nothing to the planner."""
    plan = question.plan
    whole = plan.mesh.axes is not None and None not in plan.mesh.sizes.values()
    decided = plan.remat is None or plan.remat.policy != "auto"
    return whole and decided and bool(plan.rules) and pinned(plan, question.tensors).complete


def _decided(question: Question) -> Plan:
    """The plan without a choice that the step does not give: of a remat policy where no block is marked."""
    plan = replace(question.plan, result=None, topology=question.plan.topology or question.machine.topology)
    automatic = plan.remat is not None and plan.remat.policy == "auto"
    return replace(plan, remat=None) if automatic and question.workload.remat_policies == (NO_REMAT,) else plan


def _once(make: Callable[[], Pool], held: ExitStack) -> Callable[[], Pool]:
    """The same workers at every call, ended with ``held``."""
    made: list[Pool] = []

    def pool() -> Pool:
        if not made:
            made.append(make())
            held.callback(made[0].close)
        return made[0]

    return pool


def _result(question: Question, found: Answer, best: PricedPlan, stamp: Stamp, clock: Clock) -> SearchResult:
    """The result with the best plan."""
    finished = _finished(question, best, found.bound_s, stamp)
    bound_s = min(found.bound_s, best.step_time_s)
    return SearchResult(
        plan=finished.plan,
        status=status_of(best.step_time_s, bound_s),
        estimate=best.estimate,
        bound_s=bound_s,
        tried_bound_s=min(found.tried_bound_s, best.step_time_s),
        candidates=tuple(_row(one) for one in found.tried),
        meshes=_count(found),
        interrupted=clock.stopped,
        search_s=round(clock.elapsed_s, 3),
    )


def _finished(question: Question, one: PricedPlan, bound_s: float, stamp: Stamp) -> PricedPlan:
    """A plan with all that was asked said besides, and its ``result:`` block."""
    bound_s = min(bound_s, one.step_time_s)
    plan = _whole(question.plan, one.plan)
    whole = stamped(question, plan, one.estimate, bound_s, status_of(one.step_time_s, bound_s), stamp)
    return replace(one, plan=whole)


def _nothing(
    question: Question, found: Answer, limit: tuple[int | None, str], stamp: Stamp, means: Means, clock: Clock
) -> SearchResult:
    """The result where no plan was found: proven that there is none, or not.

    What takes least where there is no limit may fit after all: then that plan is the answer, whatever was proven.
    """
    status: Status = "infeasible" if found.infeasible else "unknown"
    limit_bytes, limit_of = limit
    why = None
    if limit_bytes is not None and not clock.stopped:
        helped_s = max(HELPED * clock.elapsed_s, LEAST_HELPED_S + CHANGED_S * num_changes(question))
        helping = clock.within(helped_s) if found.infeasible else clock
        why = misfit(question, found, (limit_bytes, limit_of), means, helping)
        if why.least is not None and why.least.peak_bytes <= limit_bytes:
            if status == "infeasible":  # and is not
                floor_s = min((one.candidate.floor_s for one in found.tried), default=0.0)
                found = replace(found, bound_s=floor_s, tried_bound_s=floor_s)
            return _result(question, found, why.least, stamp, clock)
        if why.least is not None:
            why = replace(why, least=_finished(question, why.least, found.bound_s, stamp))
    return SearchResult(
        plan=None,
        status=status,
        estimate=None,
        bound_s=None if math.isinf(found.bound_s) else found.bound_s,
        tried_bound_s=None if math.isinf(found.tried_bound_s) else found.tried_bound_s,
        candidates=tuple(_row(one) for one in found.tried),
        meshes=_count(found),
        misfit=why,
        interrupted=clock.stopped,
        search_s=round(clock.elapsed_s, 3),
    )


def _compared(question: Question, stamp: Stamp, means: Means, clock: Clock, free_mesh: bool) -> SearchResult:
    """The result for a plan without holes: itself, its price, and the optimum that a search without pins finds."""
    plan, begin_s = question.plan, clock.elapsed_s
    estimate = question.workload.estimate(plan)
    own = PricedPlan(plan=plan, estimate=estimate)
    is_free = free_mesh and not question.keeps_mesh
    free = replace(plan, mesh=Mesh(axes=None) if is_free else plan.mesh, rules=(), remat=None)
    asked = replace(question, plan=free)
    fits = question.limit_bytes is None or own.peak_bytes <= question.limit_bytes
    if not fits and clock.left_s < clock.elapsed_s - begin_s:  # the step is read once more for a search
        return _as_given(asked, own, stamp, clock, fits=fits)
    found = answer(asked, means, clock)
    best = min([*([own] if fits else []), *([found.best] if found.best else [])], key=_time, default=None)
    return replace(
        _as_given(asked, own, stamp, clock, found, fits=fits),
        tried_bound_s=min(found.tried_bound_s, estimate.step_time_s),
        candidates=tuple(_row(one) for one in found.tried),
        meshes=_count(found),
        optimum=_result(asked, found, best, stamp, clock) if best else None,
    )


def _as_given(
    asked: Question, own: PricedPlan, stamp: Stamp, clock: Clock, found: Answer | None = None, *, fits: bool
) -> SearchResult:
    """The result for a plan without holes, beside what was ``found`` without its pins where there was time for that."""
    estimate = own.estimate
    bound_s = min(found.bound_s, estimate.step_time_s) if found else None
    status: Status = status_of(estimate.step_time_s, bound_s or 0.0) if fits else "infeasible"
    return SearchResult(
        plan=stamped(replace(asked, plan=own.plan), own.plan, estimate, bound_s, status, stamp),
        status=status,
        estimate=estimate,
        bound_s=bound_s,
        tried_bound_s=None,
        candidates=(),
        meshes=NO_MESHES,
        misfit=None if fits else of_plan(asked, own, found.best if found else None),
        interrupted=clock.stopped,
        search_s=round(clock.elapsed_s, 3),
    )


def _time(plan: PricedPlan) -> float:
    return plan.step_time_s


def _whole(asked: Plan, found: Plan) -> Plan:
    """What was found, with all that the plan asked said besides."""
    return replace(
        asked, mesh=replace(found.mesh, place=asked.mesh.place), rules=found.rules, remat=found.remat, result=None
    )


def stamped(
    question: Question, plan: Plan, estimate: Estimate, bound_s: float | None, status: Status, stamp: Stamp
) -> Plan:
    """A plan that answers a question, with its ``result:`` block; the bound is None where nothing was proven."""
    result = Result(
        status=status,
        step_time_s=estimate.step_time_s,
        bound_s=bound_s,
        gap=None if bound_s is None else gap_of(estimate.step_time_s, bound_s),
        peak_bytes=dict(estimate.bytes_by_kind),
        seed=question.seed,
        versions=dict(stamp.versions),
        pins=pins(question.plan),
        fingerprint=stamp.fingerprint(plan),
    )
    return replace(plan, result=result)


def _row(one: Tried) -> Row:
    mesh = one.priced.plan.mesh if one.priced else one.candidate.plan.mesh
    return Row(
        mesh={name: size or 1 for name, size in mesh.sizes.items()},
        device_order={
            axis.name: "*".join(_part(o.name, o.size) for o in axis.over) for axis in mesh.axes or () if axis.over
        },
        remat=one.candidate.remat,
        bound_s=one.bound_s,
        objective_s=one.objective_s,
        step_time_s=one.priced.step_time_s if one.priced else None,
        peak_bytes=one.priced.peak_bytes if one.priced else None,
        why=one.why,
    )


def _part(name: str, size: int | None) -> str:
    return name if size is None else f"{name}:{size}"


def _count(found: Answer) -> MeshCount:
    meshes = found.meshes
    return MeshCount(
        distinct=meshes.distinct,
        covered=meshes.covered,
        impossible=meshes.impossible,
        tried=len(meshes.listed),
        left_out=meshes.left_out,
    )
