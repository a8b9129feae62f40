"""Why a plan says what it says: what else could stand there, and what forcing something else would cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ...dsl.errors import PlanError, problem
from ...dsl.forced import forced_rules
from ...dsl.holes import holes
from ...dsl.plan import Plan, Remat, Rule
from ...dsl.rule_matches import names_values
from ...dsl.writer import assignment
from ...planner.estimate.figures import Estimate
from ...planner.explain.difference import difference_json
from ...planner.explain.reasons import Reason, without_idle
from ...planner.explain.reasons import reasons as reasons_of
from ...planner.explain.where import where_json
from ...planner.search.candidates import NO_REMAT
from ...planner.search.progress import Clock, Progress
from ...planner.search.result import SearchResult
from .drafts import Drafts
from .search import search
from .workload import PyTree, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """What a plan's step takes, and with something else forced.

    ``before`` is the plan's own price. ``alone`` is that of the plan with the forced lines and all else as it is; None
    where that is not legal (``alone_problem``). ``solved`` has the best plan with the forced lines: all that was not
    pinned is decided anew, on the plan's mesh.
    """

    forced: tuple[Rule, ...]
    before: Estimate = field(repr=False)
    alone: Estimate | None = field(repr=False)
    alone_problem: str = ""
    solved: SearchResult = field(repr=False)

    @property
    def text(self) -> str:
        """What is forced, as a plan writes it."""
        return ", ".join(f"{rule.pattern}: {assignment(rule.assignment)}" for rule in self.forced)

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values: what it costs (``cost``), and where."""
        after = self.solved.estimate
        return {
            "forced": self.text,
            "solved": self.solved.as_json(),
            "cost": difference_json(self.before, after) if after else None,
            **(where_json(self.before, after) if after else {"changes": [], "layouts": []}),
            "alone": difference_json(self.before, self.alone) if self.alone else None,
            "alone_problem": self.alone_problem or None,
        }


def reasons(
    plan: Plan,
    step: Step,
    args: Sequence[PyTree],
    *,
    donate_argnums: int | Sequence[int] | None = None,
    time_limit_s: float = 60.0,
    stop: Callable[[], bool] | None = None,
) -> list[Reason]:
    """The reasons of a complete plan's choices. Raises ``PlanError`` for a plan with holes (MW563) or mistakes."""
    _refuse_holes(plan)
    workload = Drafts(step, args, donate_argnums=donate_argnums)
    return reasons_of(plan, workload, Clock(time_limit_s, stop))


def why(
    plan: Plan,
    step: Step,
    args: Sequence[PyTree],
    forced: Sequence[str] | Mapping[str, str],
    *,
    donate_argnums: int | Sequence[int] | None = None,
    time_limit_s: float = 60.0,
    on_progress: Callable[[Progress], None] | None = None,
    stop: Callable[[], bool] | None = None,
) -> Why:
    """What it costs to force layouts (``TENSOR=ASSIGNMENT``, or assignments by pattern) on a complete plan.

    Raises ``PlanError`` with all that is wrong with them or with the plan.
    """
    _refuse_holes(plan)
    texts = [f"{tensor}={said}" for tensor, said in forced.items()] if isinstance(forced, Mapping) else forced
    workload = Drafts(step, args, donate_argnums=donate_argnums)
    tensors = workload.tensors_under(plan.remat)
    rules = forced_rules(texts, plan, tensors)
    before = workload.estimate(replace(plan, result=None))
    own = tuple(rule for rule in plan.rules if rule.pattern not in {forced.pattern for forced in rules})
    alone, alone_problem = _alone(without_idle(replace(plan, rules=(*rules, *own), result=None), tensors), workload)
    solved = search(
        step,
        args,
        plan=without_idle(_open(plan, rules, workload), tensors),
        time_limit_s=time_limit_s,
        compare=False,
        ask_compiler=False,
        seed=(plan.result.seed if plan.result else None) or 0,
        donate_argnums=donate_argnums,
        on_progress=on_progress,
        stop=stop,
    )
    return Why(forced=rules, before=before, alone=alone, alone_problem=alone_problem, solved=solved)


def _refuse_holes(plan: Plan) -> None:
    left = holes(plan)
    if left:
        raise PlanError([problem("MW563", plan.places.get("tensors"), holes=", ".join(left))])


def _alone(plan: Plan, workload: Drafts) -> tuple[Estimate | None, str]:
    try:
        return workload.estimate(plan), ""
    except PlanError as error:
        return None, error.problems[0].message if error.problems else str(error)


def _open(plan: Plan, forced: Sequence[Rule], workload: Drafts) -> Plan:
    """The plan's mesh with what is forced and what was pinned; all else is left to the planner."""
    pins = plan.result.pins if plan.result else ()
    said = {rule.pattern for rule in forced}
    rules = (*forced, *(rule for rule in plan.rules if rule.pattern in pins and rule.pattern not in said))
    decided = "remat" in pins or names_values(rules) or workload.remat_policies == (NO_REMAT,)
    return replace(plan, rules=rules, remat=plan.remat if decided else Remat(policy="auto"), result=None, comments={})
