"""What the solver gives: choices, what they cost and use, what is proven, and what each stage gained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from .arrays import Ints

Status = Literal["optimal", "feasible", "infeasible", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large a problem is."""

    nodes: int
    edges: int
    choices: int
    pairs: int  # that are not forbidden
    rows: int

    def as_json(self) -> dict[str, int]:
        """As plain JSON values."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The state when a stage ended."""

    name: str
    elapsed_s: float
    cost: float  # infinite before the first solution
    bound: float
    size: Size  # of the problem that is left

    def as_json(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "stage": self.name,
            "elapsed_s": round(self.elapsed_s, 3),
            "cost": plain(self.cost),
            "bound": plain(self.bound),
            "left": self.size.as_json(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Solution:
    """The best choices found (None: none) and what is known of the cheapest."""

    choices: Ints | None
    cost: float
    bound: float  # no solution costs less
    peak_usage: int
    status: Status
    before: Size
    after: Size  # of the reductions
    stages: tuple[Stage, ...]

    @property
    def gap(self) -> float:
        """How much cheaper, as a part of its cost, the cheapest solution may still be."""
        return gap(self.cost, self.bound)


def gap(cost: float, bound: float) -> float:
    """The part of the cost that is above the bound."""
    if cost == float("inf"):
        return float("inf")
    return max(0.0, (cost - bound) / abs(cost)) if cost else float(bound < 0)


def plain(number: float) -> int | float | None:
    """A number as JSON has it: whole where it is, null where infinite."""
    if number in (float("inf"), float("-inf")):
        return None
    return int(number) if number == int(number) else number
