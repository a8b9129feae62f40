"""What a plan leaves to the planner."""

from __future__ import annotations

from .open_settings import named_values
from .plan import Auto, Plan


def holes(plan: Plan) -> tuple[str, ...]:
    """The parts of the plan that the planner is to decide, by their keys: ``mesh.data``, ``tensors.params/**``.

    Of settings that are the word ``auto`` only the model can say whether they are left open: they are not among these.
    """
    found = [f"with.{name}" for name, setting in plan.settings.items() if named_values(setting) is not None]
    if plan.mesh.axes is None:
        found.append("mesh")
    found += [f"mesh.{axis.name}" for axis in plan.mesh.axes or () if axis.size is None]
    if not plan.rules:
        found.append("tensors")
    found += [f"tensors.{rule.pattern}" for rule in plan.rules if isinstance(rule.assignment, Auto)]
    if plan.remat and plan.remat.policy == "auto":
        found.append("remat")
    return tuple(found)
