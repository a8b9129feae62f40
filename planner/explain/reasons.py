"""Why a plan says what it says: for each of its lines the price of the step with another one in its place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...dsl.errors import PlanError
from ...dsl.patterns import literal
from ...dsl.plan import Assignment, Infer, Plan, Remat, Replicate, Rule, Split, SplitDim
from ...dsl.resolve import Resolution, key_of, resolve
from ...dsl.tensors import Tensor
from ...dsl.writer import assignment, remat_text
from ..estimate.figures import Estimate
from ..graph import Sharding
from ..search.candidates import NO_REMAT, policy_name, policy_of
from ..search.progress import Clock
from ..search.simple import simple_layouts
from ..search.workload import Workload

PROPAGATION, REPLICATED, SPLIT = "left to propagation", "replicated", "split over the largest axis"
WHOLE_PLAN = "the whole plan"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """What could stand in the place of a choice; ``estimate`` is None where ``problem`` says why it is not legal."""

    what: str
    estimate: Estimate | None = field(repr=False)
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A choice of a plan with what could stand in its place, all else as it is.

    ``tensors`` counts those that the line decides. Not ``reached`` says that the time was over before its turn.
    """

    choice: str
    tensors: int = 0
    pinned: bool = False
    alternatives: tuple[Alternative, ...] = ()
    reached: bool = True


def reasons(plan: Plan, workload: Workload, clock: Clock) -> list[Reason]:
    """The reasons of a complete plan's choices: its lines under ``tensors:``, its remat policy, the plan as a whole.

    Each alternative is priced as ``estimate`` prices plans. Choices whose turn comes when the time is over have none.
    """
    bare = replace(plan, result=None)
    pins = plan.result.pins if plan.result else ()
    tensors = workload.tensors_under(plan.remat)
    resolution = resolve(bare, tensors)
    questions = [*_of_rules(bare, tensors, resolution), *_of_remat(bare, workload), _by_hand(bare, tensors)]
    return [_answered(question, workload, pins, clock) for question in questions]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """A choice, the key that a plan's pins know it by, and the plans in its place, made when they are wanted."""

    choice: str
    pin: str
    tensors: int = 0
    plans: Iterable[tuple[str, Plan]]


def _answered(question: _Question, workload: Workload, pins: Sequence[str], clock: Clock) -> Reason:
    known = {"choice": question.choice, "tensors": question.tensors, "pinned": question.pin in pins}
    if clock.over:
        return Reason(**known, reached=False)  # type: ignore[arg-type]
    found = tuple(_priced(what, plan, workload) for what, plan in question.plans)
    return Reason(**known, alternatives=found)  # type: ignore[arg-type]


def _priced(what: str, plan: Plan, workload: Workload) -> Alternative:
    try:
        return Alternative(what=what, estimate=workload.estimate(plan))
    except PlanError as error:
        return Alternative(what=what, estimate=None, problem=error.problems[0].message if error.problems else "")


def _of_rules(plan: Plan, tensors: Sequence[Tensor], resolution: Resolution) -> Iterator[_Question]:
    for number, rule in enumerate(plan.rules):
        decided = [tensor for tensor in tensors if resolution.rules.get(key_of(tensor)) is rule]
        yield _Question(
            choice=f"{rule.pattern}: {assignment(rule.assignment)}",
            pin=rule.pattern,
            tensors=len(decided),
            plans=_other_rules(plan, number, decided, resolution),
        )


def _other_rules(
    plan: Plan, number: int, decided: Sequence[Tensor], resolution: Resolution
) -> Iterator[tuple[str, Plan]]:
    """The plan with one line left to propagation, and replicated; one that splits nothing is split instead."""
    rule = plan.rules[number]
    if not isinstance(rule.assignment, Infer):
        yield PROPAGATION, _with(plan, number, [replace(rule, assignment=Infer())])
    layouts = [layout for tensor in decided if (layout := resolution.layout(tensor)) is not None]
    if any(axes for layout in layouts for axes in layout.axes):
        yield REPLICATED, _with(plan, number, [replace(rule, assignment=Replicate())])
    elif layouts:
        split = [made for tensor in decided if (made := _split(tensor, plan.mesh.sizes))]
        if split:
            yield SPLIT, _with(plan, number, [*split, *([rule] if len(split) < len(decided) else [])])


def _with(plan: Plan, number: int, rules: Sequence[Rule]) -> Plan:
    return replace(plan, rules=(*plan.rules[:number], *rules, *plan.rules[number + 1 :]))


def _split(tensor: Tensor, sizes: Mapping[str, int | None]) -> Rule | None:
    """A line that splits a tensor's largest dim that the largest axis divides; None where it divides none."""
    axis = max(sizes, key=lambda name: sizes[name] or 0, default=None)
    ways = (sizes[axis] or 1) if axis else 1
    dims = [dim for dim, size in enumerate(tensor.shape) if size % ways == 0]
    if axis is None or ways == 1 or not dims:
        return None
    dim = max(dims, key=lambda dim: tensor.shape[dim])
    return Rule(pattern=literal(tensor.path), assignment=Split(splits=(SplitDim(dim=dim, axes=(axis,)),)))


def _of_remat(plan: Plan, workload: Workload) -> Iterator[_Question]:
    if workload.remat_policies == (NO_REMAT,):
        return
    own = policy_name(plan.remat)
    others = [policy_of(name) for name in workload.remat_policies if name != own]
    yield _Question(
        choice=f"remat: {remat_text(plan.remat) if plan.remat else NO_REMAT}",
        pin="remat",
        plans=((f"remat {policy_name(other)}", _under(plan, other, workload)) for other in others),
    )


def _under(plan: Plan, remat: Remat | None, workload: Workload) -> Plan:
    """The plan with another policy, without the lines for values that the step does not compute then."""
    return without_idle(replace(plan, remat=remat), workload.tensors_under(remat))


def without_idle(plan: Plan, tensors: Sequence[Tensor]) -> Plan:
    """The plan without those of its lines that decide no tensor."""
    busy = {id(rule) for rule in resolve(plan, tensors).rules.values()}
    return replace(plan, rules=tuple(rule for rule in plan.rules if id(rule) in busy))


def _by_hand(plan: Plan, tensors: Sequence[Tensor]) -> _Question:
    sizes = {name: size or 1 for name, size in plan.mesh.sizes.items()}
    every = simple_layouts(tensors, {}, sizes)
    plans = ((what, replace(plan, rules=tuple(rules_of(layouts, tensors)))) for what, layouts in every)
    return _Question(choice=WHOLE_PLAN, pin="", plans=plans)


def rules_of(layouts: Mapping[str, Sharding], tensors: Sequence[Tensor]) -> Iterator[Rule]:
    """A rule for each tensor with a layout, but for results that are an argument's next value."""
    returned = {tensor.path for tensor in tensors if tensor.returns}
    for path, layout in layouts.items():
        if path not in returned:
            yield Rule(pattern=literal(path), assignment=_assignment(layout))


def _assignment(layout: Sharding) -> Assignment:
    splits = tuple(SplitDim(dim=dim, axes=axes) for dim, axes in enumerate(layout) if axes)
    return Split(splits=splits) if splits else Replicate()
