"""Everything that the language can say of a plan, with or without the tensors of its workload."""

from __future__ import annotations

from collections.abc import Sequence

from .errors import PlanError, Problem
from .plan import Plan
from .resolve import resolve
from .rule_checks import like_cycles, unknown_axes, unknown_saved, unused_axes
from .tensors import Tensor


def check(plan: Plan, tensors: Sequence[Tensor] | None = None) -> tuple[Problem, ...]:
    """The plan's problems and notes, in the order of their places.

    Without ``tensors`` only what the rules say of each other and of the mesh is checked.
    """
    of_rules = () if tensors is not None else (*unknown_axes(plan), *like_cycles(plan))
    of_tensors = () if tensors is None else resolve(plan, tensors).problems
    of_remat = () if tensors is None else unknown_saved(plan, tensors)
    return PlanError([*of_rules, *of_tensors, *of_remat, *unused_axes(plan)]).problems
