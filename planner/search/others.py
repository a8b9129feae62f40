"""Plans beside the best one: the next best, and those of less memory and more time."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace

from ...dsl.errors import PlanError
from ...dsl.patterns import literal
from ...dsl.plan import Assignment, Plan, Replicate, Rule, Shard, Split, SplitDim
from ...dsl.rule_checks import axes_of
from ...dsl.tensors import Tensor
from ..explain.rows import binary
from ..graph import Sharding
from .progress import Clock
from .question import Answer, Means, Question, answer
from .result import PricedPlan
from .tried import Tried

STEP_DOWN = 0.9  # from one point of the frontier to the next limit
MAX_POINTS = 12
FORCED = 4  # tensors that are laid out otherwise, for each alternative wanted


def alternatives(question: Question, found: Answer, means: Means, clock: Clock) -> tuple[PricedPlan, ...]:
    """The best plans that differ from each other, without the best itself; fewer than asked for where time is over.

    First those of other meshes and policies that were solved; where these are too few, those in which one of the
    largest arguments lies otherwise than in the best plan. What teams write by hand comes with them, if it is as good.
    """
    distinct = differing_plans(found.plans)
    solved = (one.priced for one in found.ranked if one.priced and one.objective_s < math.inf)
    if found.best and len(differing_plans([found.best, *solved])) < question.top_k:
        distinct = differing_plans([*distinct, *_forced(question, found.ranked[0], means, clock)])
    return tuple(sorted(distinct[1:], key=lambda one: one.step_time_s)[: question.top_k - 1])


def frontier(question: Question, best: PricedPlan, means: Means, clock: Clock) -> tuple[PricedPlan, ...]:
    """Plans of less and less memory, each the fastest that was found below a limit, the best one first: the limit is
    lowered until nothing fits.
    """
    points = [best]
    while len(points) < MAX_POINTS and not clock.over:
        limit = int(points[-1].peak_bytes * STEP_DOWN)
        asked = replace(question, limit_bytes=limit, top_k=1)
        lower = answer(asked, means.aside(f"a plan of at most {binary(limit)}"), clock)
        if lower.best is None:
            break
        points.append(lower.best)
    return tuple(points)


def _forced(question: Question, best: Tried, means: Means, clock: Clock) -> Iterator[PricedPlan]:
    """Plans in which one of the largest arguments that no pin decides lies otherwise."""
    plan = best.candidate.plan
    arguments = [t for t in question.tensors if t.role == "argument" and t.path not in best.candidate.pins]
    largest = sorted(arguments, key=lambda tensor: (-tensor.num_bytes, tensor.path))
    for tensor in largest[: FORCED * question.top_k]:
        for assignment in _other_layouts(tensor, best.layouts, plan.mesh.sizes):
            if clock.over:
                return
            rule = Rule(pattern=literal(tensor.path), assignment=assignment)
            pinned = replace(plan, rules=(rule, *plan.rules))
            asked = replace(question, plan=pinned, top_k=1)
            try:
                yield from answer(asked, means.aside(f"another layout of {tensor.path}"), clock).plans[:1]
            except PlanError:
                continue  # the mesh does not divide it so


def _other_layouts(
    tensor: Tensor, layouts: Mapping[str, Sharding], sizes: Mapping[str, int | None]
) -> Iterator[Assignment]:
    """Whole, and each dim split over the largest axis that divides it, but as it lies now."""
    now = layouts.get(tensor.path, ())
    if any(now):
        yield Replicate()
    for dim, size in enumerate(tensor.shape):
        axes = [name for name, count in sizes.items() if count and count > 1 and size % count == 0]
        axis = max(axes, key=lambda name: sizes[name] or 0, default=None)
        if axis is not None and now != tuple((axis,) if i == dim else () for i in range(len(tensor.shape))):
            yield Split(splits=(SplitDim(dim=dim, axes=(axis,)),))


def distinct_plans(plans: Iterable[PricedPlan]) -> list[PricedPlan]:
    """One of those that say the same, in order."""
    found: dict[object, PricedPlan] = {}
    for one in plans:
        found.setdefault(says(one.plan), one)
    return list(found.values())


def says(plan: Plan) -> Hashable:
    """What a plan says of a step's layouts, to be compared."""
    return tuple(plan.mesh.axes or ()), plan.rules, plan.remat


def differing_plans(plans: Iterable[PricedPlan]) -> list[PricedPlan]:
    """One of those under which a step is laid out alike, in order."""
    found: dict[object, PricedPlan] = {}
    for one in plans:
        found.setdefault(_laid_out(one.plan), one)
    return list(found.values())


def _laid_out(plan: Plan) -> object:
    """What a plan says in whatever order, but for axes that it splits nothing over: on any mesh the same lies whole on
    all devices.
    """
    assignments = [rule.assignment for rule in plan.rules]
    used = {axis for assignment in assignments for axis in axes_of(assignment)}
    is_whole = not used and not any(isinstance(assignment, Shard) for assignment in assignments)
    return () if is_whole else tuple(plan.mesh.axes or ()), frozenset(plan.rules), plan.remat


def undominated_first(one: PricedPlan) -> tuple[float, int]:
    """What is small where no other plan beats one: the quickest come first, of these those of least memory."""
    return one.step_time_s, one.peak_bytes


def undominated(points: Iterable[PricedPlan]) -> Iterator[PricedPlan]:
    """Those that no other one beats in time and memory, the quickest first; the first of those that take the same."""
    least_bytes = math.inf
    for one in sorted(points, key=undominated_first):
        if one.peak_bytes < least_bytes:
            least_bytes = one.peak_bytes
            yield one
