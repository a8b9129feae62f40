"""The answer to ``meshwright check``: is the plan legal, is it complete, do the step's arguments alone fit?"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .checks import check
from .errors import PlanError, Problem, listing, problem
from .footprint import argument_bytes
from .holes import holes
from .plan import Plan
from .resolve import resolve
from .tensors import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What is known of a plan without compiling it.

    ``argument_bytes`` are one device's bytes by argument of the step, empty where the tensors are not known;
    ``limit_bytes`` is what a device may use, None where neither plan nor chip says.
    """

    problems: tuple[Problem, ...]
    holes: tuple[str, ...]
    argument_bytes: Mapping[str, int | None] = field(default_factory=dict)
    limit_bytes: int | None = None

    @property
    def legal(self) -> bool:
        """Whether there are no errors, apart from arguments that do not fit."""
        return all(p.severity == "note" or p.code == "MW122" for p in self.problems)

    @property
    def total_bytes(self) -> int | None:
        """One device's bytes of all arguments; None where they are not all known."""
        held = [count for count in self.argument_bytes.values() if count is not None]
        return sum(held) if held and len(held) == len(self.argument_bytes) else None

    @property
    def fits(self) -> bool | None:
        """Whether the arguments alone fit; None where that is not known."""
        if self.total_bytes is None or self.limit_bytes is None:
            return None
        return self.total_bytes <= self.limit_bytes

    def as_json(self) -> dict[str, Any]:
        """The verdict as plain JSON values."""
        return {
            "legal": self.legal,
            "complete": not self.holes,
            "holes": list(self.holes),
            "fits": self.fits,
            "argument_bytes": dict(self.argument_bytes),
            "total_argument_bytes": self.total_bytes,
            "limit_bytes": self.limit_bytes,
            "problems": [p.as_json() for p in self.problems],
        }


def judge(
    plan: Plan,
    tensors: Sequence[Tensor] | None = None,
    *,
    other_problems: Iterable[Problem] = (),
    other_holes: Sequence[str] = (),
    chip_bytes: int | None = None,
) -> Verdict:
    """The verdict on a plan.

    ``tensors`` are its workload's, ``chip_bytes`` what its chip has for a program, ``other_problems`` what is known
    from elsewhere (its topology, its model), ``other_holes`` what only its model knows to be left open.
    """
    problems = [*check(plan, tensors), *other_problems]
    verdict = Verdict(
        problems=PlanError(problems).problems,
        holes=tuple(dict.fromkeys([*other_holes, *holes(plan)])),
        argument_bytes=argument_bytes(plan.mesh, tensors, resolve(plan, tensors)) if tensors else {},
        limit_bytes=plan.limits.hbm_bytes if plan.limits.hbm_bytes is not None else chip_bytes,
    )
    return _with_misfit(plan, verdict) if verdict.legal and verdict.fits is False else verdict


def _with_misfit(plan: Plan, verdict: Verdict) -> Verdict:
    """The verdict with the problem that the arguments do not fit, the largest first."""
    sizes = sorted(((held or 0, name) for name, held in verdict.argument_bytes.items()), reverse=True)
    total, limit = verdict.total_bytes or 0, verdict.limit_bytes or 0
    found = problem(
        "MW122",
        plan.places.get("limits") or plan.places.get("topology"),
        total=f"{total:,}",
        limit=f"{limit:,}",
        excess=f"{total - limit:,}",
        arguments=listing([f"{name} {held:,}" for held, name in sizes]),
    )
    return Verdict(
        problems=PlanError([*verdict.problems, found]).problems,
        holes=verdict.holes,
        argument_bytes=verdict.argument_bytes,
        limit_bytes=verdict.limit_bytes,
    )
