"""Why nothing fits, and what would: the least memory that layouts reach, and changes with their prices."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace

from ...dsl.errors import PlanError
from ...dsl.plan import Auto, Axis, Limits, Mesh, Plan, Remat, Rule, Topology
from ..estimate.limit import memory_limit, whose
from ..explain.rows import binary
from ..topology import Machine, physical, problems
from .candidates import NO_REMAT, policy_name
from .progress import Clock
from .question import Answer, Means, Question, answer
from .result import Misfit, PricedPlan, Remedy

LEAST_SHARE = 0.5  # of the time for the least peak; the changes share the rest
QUICKER_SHARE = 0.3  # of what is left then for the fastest plan that takes hardly more, which may take less
ASKED_SHARE = 0.5  # of both where something that was asked may be given up, of which there is more to be tried then
ROOM = 0.02  # how much more that may take
WORTH = 0.05  # what part of the time it has to save then to be said too: 0.1 % more room saved 40 % of a scanned step
LARGEST = 8  # tensors shown
FEW_MESHES = 4  # looked at for each change
MAX_PINS = 6  # given up one at a time
LARGER = (2, 4, 8)  # times as many chips, each twice those before


def misfit(question: Question, found: Answer, limit: tuple[int, str], means: Means, clock: Clock) -> Misfit:
    """Why no plan of a question fits, to which nothing was ``found``. Every figure is of a plan that was written and
    priced; time ends the list.
    """
    limit_bytes, limit_of = limit
    share = ASKED_SHARE if num_changes(question) else 1.0
    least = quicker = _least(question, found, means, clock.part(share * LEAST_SHARE))
    if least is not None and least.peak_bytes > limit_bytes and not clock.over:
        room_bytes, time = int(least.peak_bytes * (1 + ROOM)), clock.part(share * QUICKER_SHARE)
        quicker = _first(question, room_bytes, means, time, "trying so much memory") or least
        least = min((least, quicker), key=lambda one: (one.peak_bytes, one.step_time_s))
    proven_bytes = min(found.proven_bytes(), least.peak_bytes if least else sys.maxsize)
    if least is not None and least.peak_bytes <= limit_bytes:
        return _said(question, limit_bytes, limit_of, least, ())  # one that fits after all
    needing = [] if least is None else [_more(question, one.peak_bytes, one) for one in (least, quicker) if one]
    growing = None if found.is_large else least
    remedies = (*worth_more(needing), *_remedies(question, means, clock, growing))
    return _said(question, limit_bytes, limit_of, least, remedies, proven_bytes)


def of_plan(question: Question, plan: PricedPlan, best: PricedPlan | None) -> Misfit:
    """Why a plan that leaves nothing open does not fit; ``best`` is the one without its pins."""
    limit_bytes, limit_of = memory_limit(question.machine, question.plan.limits.hbm_bytes)
    remedies = [_more(question, plan.peak_bytes, plan)]
    remedies += [_remedy("give up all that the plan says", best)] if best is not None else []
    return _said(question, limit_bytes or 0, limit_of, plan, remedies)


def _said(
    question: Question,
    limit_bytes: int,
    limit_of: str,
    least: PricedPlan | None,
    remedies: Iterable[Remedy],
    proven_bytes: int = 0,
) -> Misfit:
    tensors = least.estimate.memory.tensors if least else ()
    return Misfit(
        limit_bytes=limit_bytes,
        limit_of=whose(question.plan.limits, limit_of),
        least_bytes=least.peak_bytes if least else None,
        bytes_by_kind=dict(least.estimate.bytes_by_kind) if least else {},
        tensors=tuple((live.name, live.num_bytes) for live in tensors[:LARGEST]),
        remedies=tuple(remedies),
        marks_blocks=least is None or question.workload.remat_policies != (NO_REMAT,),
        proven_bytes=proven_bytes,
        least=least,
    )


def _least(question: Question, found: Answer, means: Means, clock: Clock) -> PricedPlan | None:
    """The plan of the least peak that is found; the fastest where layouts say nothing of that; where none is found one
    laid out by hand, of a small step whatever the time, unless the user wants it to end.
    """
    least = found.least(clock) or (None if clock.over else _first(question, None, means, clock))
    return least or (None if clock.stopped else found.by_hand())


def _first(
    question: Question, limit_bytes: int | None, means: Means, clock: Clock, doing: str = "looking for the least peak"
) -> PricedPlan | None:
    """The best plan within another limit; None where there is none, or a pin forbids it. It is written for that limit:
    of what is beyond its own a plan says what takes least, whatever the time.
    """
    is_other = limit_bytes is not None and limit_bytes != question.limit_bytes
    plan = within(question.plan, limit_bytes or 0) if is_other else question.plan
    asked = replace(question, plan=plan, limit_bytes=limit_bytes, top_k=1, max_meshes=FEW_MESHES)
    try:
        return answer(asked, means.aside(doing), clock).best
    except PlanError:
        return None


def worth_more(needing: Iterable[Remedy]) -> list[Remedy]:
    """Of remedies that give more and more memory the first, and those that are worth more of it."""
    found: list[Remedy] = []
    for one in needing:
        if not found or one.step_time_s < found[-1].step_time_s * (1 - WORTH):
            found.append(one)
    return found


def _remedies(question: Question, means: Means, clock: Clock, growing: PricedPlan | None) -> Iterator[Remedy]:
    """The changes but for more memory that were found to help; each gets its share of the time. How many chips would do
    is said whatever that is, unless the user wants it to end: of a plan that is ``growing`` an axis may be larger.
    """
    changes = [] if clock.over else list(_changes(question))
    for number, (change, other) in enumerate(changes):
        if clock.over:
            break
        share = clock.part(1 / (len(changes) - number + 1))
        found = _first(other, other.limit_bytes, means, share, f"trying to {change}")
        if found is not None:
            yield _remedy(change, found)
    for change, other in _more_chips(question):
        if clock.stopped:
            return
        found = None if clock.over else _first(other, other.limit_bytes, means, clock, f"trying to {change}")
        if found is not None:
            yield _remedy(change, found)
            return
        grown = None if growing is None else _grown(other, growing.plan)
        if grown is not None:
            sizes = ", ".join(f"{name}: {size}" for name, size in grown.plan.mesh.sizes.items())
            yield _remedy(
                f"take {other.machine.topology}, {other.machine.num_devices} devices, mesh {{{sizes}}}", grown
            )
            return


def _grown(question: Question, plan: Plan) -> PricedPlan | None:
    """The fastest that fits of a plan's layouts on a larger machine, an axis of its mesh as many times as large."""
    sizes = {name: size or 1 for name, size in plan.mesh.sizes.items()}
    times, rest = divmod(question.machine.num_devices, math.prod(sizes.values()))
    fitting = []
    for grows in sizes if rest == 0 else ():
        axes = tuple(Axis(name=name, size=size * (times if name == grows else 1)) for name, size in sizes.items())
        larger = replace(plan, topology=question.plan.topology, mesh=Mesh(axes=axes), result=None)
        with suppress(PlanError):
            found = PricedPlan(plan=larger, estimate=question.workload.estimate(larger))
            fitting += [found] if found.peak_bytes <= (question.limit_bytes or 0) else []
    return min(fitting, key=lambda one: (one.step_time_s, one.peak_bytes), default=None)


def _remedy(change: str, found: PricedPlan) -> Remedy:
    return Remedy(change=change, plan=found.plan, step_time_s=found.step_time_s, peak_bytes=found.peak_bytes)


def _more(question: Question, num_bytes: int, found: PricedPlan) -> Remedy:
    remedy = _remedy(more_memory(question.machine, num_bytes), found)
    return replace(remedy, plan=within(remedy.plan, num_bytes), is_memory=True)


def within(plan: Plan, num_bytes: int) -> Plan:
    """A plan that was to fit into less, where it says so, as one for a device with so much memory."""
    return plan if plan.limits.hbm_bytes is None else replace(plan, limits=Limits(hbm_bytes=num_bytes))


def more_memory(machine: Machine, num_bytes: int) -> str:
    """The change that gives a device so much memory, and whether the chip has it."""
    topology, has = machine.topology, machine.hbm_bytes
    said = f"give a device {binary(num_bytes)} of memory ({num_bytes:,} bytes)"
    return said if has is None or num_bytes <= has else f"{said}: more than {topology.kind} has, which is {binary(has)}"


def num_changes(question: Question) -> int:
    """How many changes there are of what was asked, each of which takes time to try."""
    return sum(1 for _ in _changes(question))


def _changes(question: Question) -> Iterator[tuple[str, Question]]:
    """The same question with another remat policy, or without one of the pins."""
    plan = question.plan
    if plan.remat is not None and plan.remat.policy != "auto" and question.workload.remat_policies != (NO_REMAT,):
        said = f"let the planner choose the remat policy ('remat: auto', not {policy_name(plan.remat)})"
        yield said, _asking(question, remat=None)
    pinned = [rule for rule in plan.rules if not isinstance(rule.assignment, Auto)]
    for rule in pinned[:MAX_PINS]:
        yield f"give up the pin '{rule.pattern}'", _asking(question, rules=_without(plan, rule))
    if plan.mesh.axes is not None and not question.keeps_mesh:
        yield "give up the mesh ('mesh: auto')", _asking(question, mesh=Mesh(axes=None))
    if len(pinned) > 1:
        yield "give up all pins of tensors", _asking(question, rules=())


def _without(plan: Plan, gone: Rule) -> tuple[Rule, ...]:
    """The rules with one of them a hole: it still decides what it matches."""
    return tuple(replace(rule, assignment=Auto()) if rule is gone else rule for rule in plan.rules)


def _asking(question: Question, **changed: Mesh | Remat | tuple[Rule, ...] | None) -> Question:
    return replace(question, plan=replace(question.plan, **changed))  # type: ignore[arg-type]


def _more_chips(question: Question) -> Iterator[tuple[str, Question]]:
    """The same question on larger machines of the kind, the smallest first; the mesh is left to the planner, if it is
    not the only one for the step.
    """
    topology = question.machine.topology
    for larger in () if question.keeps_mesh else _larger(topology):
        machine = physical(larger)
        plan = replace(question.plan, topology=larger, mesh=Mesh(axes=None))
        mesh = " and 'mesh: auto'" if question.plan.mesh.axes is not None else ""
        limit = question.limit_bytes
        yield (
            f"take {larger}, {machine.num_devices} devices{mesh}",
            replace(question, plan=plan, machine=machine, limit_bytes=limit),
        )


def _larger(topology: Topology) -> Iterator[Topology]:
    """Machines of the kind with a few times the chips, their dims as even as can be; several machines where one has no
    more.
    """
    larger = topology
    for _ in LARGER:
        larger = _twice(larger)
        if not problems(larger):
            yield larger


def _twice(topology: Topology) -> Topology:
    """A machine with twice the chips: its smallest dim twice as large, or two of them, joined as nodes or slices."""
    dims = list(topology.dims)
    dims[min(range(len(dims)), key=lambda i: (dims[i], i))] *= 2
    grown = replace(topology, dims=tuple(dims))
    joined = (replace(topology, dims=(*topology.dims, 2)), replace(topology, num_slices=2 * topology.num_slices))
    return next((each for each in (grown, *joined) if not problems(each)), grown)
