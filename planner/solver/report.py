"""A solution as people and programs read it."""

from __future__ import annotations

from typing import Any

from ..explain.rows import Rows
from .solution import Size, Solution, gap, plain


def as_json(solution: Solution) -> dict[str, Any]:
    """Plain JSON values; choices are null where none were found."""
    return {
        "status": solution.status,
        "cost": plain(solution.cost),
        "bound": plain(solution.bound),
        "gap": plain(solution.gap),
        "peak_usage": solution.peak_usage,
        "reduction": {"before": solution.before.as_json(), "after": solution.after.as_json()},
        "stages": [stage.as_json() for stage in solution.stages],
        "choices": None if solution.choices is None else solution.choices.tolist(),
    }


def tables(solution: Solution) -> tuple[Rows, ...]:
    """What the reductions left, and how cost and bound went."""
    return _reduction(solution), _stages(solution)


def headline(solution: Solution) -> str:
    """The answer in a line."""
    if solution.status == "infeasible":
        return "infeasible: no choices stay within the limits"
    if solution.choices is None:
        return f"nothing found; a solution costs {figure(solution.bound)} or more"
    told = f"cost {figure(solution.cost)}, peak usage {solution.peak_usage:,}"
    if solution.status == "optimal":
        return f"optimal: {told}"
    return f"{told}; bound {figure(solution.bound)}, gap {solution.gap:.3%}"


def figure(number: float) -> str:
    """A cost with its thousands apart; a dash where it is infinite."""
    value = plain(number)
    return "-" if value is None else f"{value:,}"


def _reduction(solution: Solution) -> Rows:
    rows = [
        (name, f"{getattr(solution.before, name):,}", f"{getattr(solution.after, name):,}") for name in Size.__slots__
    ]
    return Rows(title="What the reductions left", headers=("", "before", "after"), rows=tuple(rows))


def _stages(solution: Solution) -> Rows:
    rows = [
        (
            stage.name,
            f"{stage.elapsed_s:.1f} s",
            figure(stage.cost),
            figure(stage.bound),
            "-" if stage.cost == float("inf") else f"{gap(stage.cost, stage.bound):.3%}",
        )
        for stage in solution.stages
    ]
    return Rows(title="Stages", headers=("stage", "ended at", "cost", "bound", "gap"), rows=tuple(rows))
